package virtiofs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// openBy opens a file in a thread of the guest.
func openBy(c *client, thread uint32, node uint64) unix.Errno {
	c.pid = thread
	errno, p := call(c, wire.Open, node, &fuse.OpenIn{Flags: unix.O_RDONLY})
	if errno == 0 {
		ask[struct{}](c, wire.Release, node, &fuse.ReleaseIn{Fh: (*fuse.OpenOut)(ptr(p)).Fh})
	}
	return errno
}

// The second open of a file that the host has replaced is served, of the same file if the
// guest has it open, in the thread that had ESTALE and only once.
func TestOpenAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	c := newClient(t, dir)
	node := c.create(1, "log", unix.O_RDWR, 0o600).NodeId
	replace(t, path, "new")
	for i, step := range []struct {
		thread uint32
		want   unix.Errno
	}{{7, unix.ESTALE}, {8, unix.ESTALE}, {7, 0}, {7, unix.ESTALE}, {7, 0}, {9, unix.ESTALE}, {8, 0}} {
		if errno := openBy(c, step.thread, node); errno != step.want {
			t.Errorf("open %d, by thread %d: %v, want %v", i, step.thread, errno, step.want)
		}
	}
}

// A file that was found after the ESTALE is opened although the host has replaced it since.
func TestOpenOfWhatIsReplacedAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, dir)
	c.pid = 7
	node := c.mustLookup(1, "f").NodeId
	for i := range 100 { // more often than threads are remembered
		replace(t, path, fmt.Sprint("old ", i))
		if errno := openBy(c, 7, node); errno != unix.ESTALE && errno != 0 {
			t.Fatalf("first open: %v", errno)
		}
		node = c.mustLookup(1, "f").NodeId
		replace(t, path, fmt.Sprint("new ", i))
		if errno, p := call(c, wire.Open, node, &fuse.OpenIn{}); errno != 0 {
			t.Fatalf("second open, of round %d: %v", i, errno)
		} else if got := c.read((*fuse.OpenOut)(ptr(p)).Fh, 0, 100); got != fmt.Sprint("old ", i) {
			t.Errorf("round %d: read %q", i, got)
		}
		if errno := openBy(c, 7, node); errno != unix.ESTALE {
			t.Errorf("third open, of round %d: %v, want ESTALE", i, errno)
		}
		c.pid = uint32(100 + i)
		node = c.mustLookup(1, "f").NodeId
		c.pid = 7
	}
}

// A program opens a file again by its descriptor, such as /dev/stdout, after the host has
// renamed, deleted or replaced it.
func TestOpenByDescriptor(t *testing.T) {
	dir := t.TempDir()
	inMount(t, "TestOpenByDescriptorInside", mountDir(t, dir, serving{policy: passthrough.Rootfs}), envHost+"="+dir)
}

// TestOpenByDescriptorInside is what TestOpenByDescriptor runs.
func TestOpenByDescriptorInside(t *testing.T) {
	dir, host := inside(t), os.Getenv(envHost)
	for what, change := range map[string]func(path string) error{
		"renamed":  func(path string) error { return os.Rename(path, path+".1") },
		"deleted":  os.Remove,
		"replaced": func(path string) error { _ = os.Rename(path, path+".1"); return os.WriteFile(path, nil, 0o600) },
	} {
		fd, err := unix.Open(filepath.Join(dir, what), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(fd, []byte("text")); err != nil {
			t.Fatal(err)
		}
		if err := change(filepath.Join(host, what)); err != nil {
			t.Fatal(err)
		}
		again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		var p [10]byte
		if n, err := unix.Read(again, p[:]); string(p[:max(n, 0)]) != "text" {
			t.Errorf("%s: read %q, %v", what, p[:max(n, 0)], err)
		}
		_, _ = unix.Close(fd), unix.Close(again)
	}
}
