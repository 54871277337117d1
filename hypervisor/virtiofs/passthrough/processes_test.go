package passthrough

import (
	"os"
	"strconv"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// A guest with the host's /proc in its share does not find the process that serves
// it there, whose memory any of its threads may read. It finds others.
func TestOwnProcessIsHidden(t *testing.T) {
	root, err := os.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	fs := newFS(t, root)
	onThread(t, func(th *Thread) {
		look := func(name string) unix.Errno {
			dir, dfd, errno := fs.dir(th, rootID)
			if errno != 0 {
				t.Fatal(errno)
			}
			defer fs.leave(dir)
			var out fuse.EntryOut
			return fs.entry(th, dir, dfd, name, &out)
		}
		for name, want := range map[string]unix.Errno{
			strconv.Itoa(os.Getpid()):       unix.ENOENT,
			strconv.Itoa(unix.Gettid()):     unix.ENOENT,
			strconv.Itoa(os.Getppid()):      0,
			"0" + strconv.Itoa(os.Getpid()): unix.ENOENT, // no name of the kernel's
			"self":                          0,
			"sys":                           0,
		} {
			if errno := look(name); errno != want {
				t.Errorf("%s: %v, want %v", name, errno, want)
			}
		}
	})
	dir := t.TempDir()
	own := strconv.Itoa(os.Getpid())
	if err := os.Mkdir(dir+"/"+own, 0o700); err != nil {
		t.Fatal(err)
	}
	plain, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	onThread(t, func(th *Thread) { linked{t, newFS(t, plain), th}.look(rootID, own) }) // elsewhere it is a name
}
