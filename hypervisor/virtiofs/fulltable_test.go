package virtiofs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// An open that fails because the guest has too many files open neither makes a
// file nor truncates one, as on a file system of Linux.
func TestTooManyOpenFilesChangeNothing(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old")
	if err := os.WriteFile(old, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, f := serveFew(t, dir)
	c := clientOf(t, f)
	node := c.mustLookup(1, "old").NodeId
	last := openAll(c, node)

	const truncate = unix.O_RDWR | unix.O_TRUNC
	if errno, _ := call(c, wire.Open, node, &fuse.OpenIn{Flags: truncate}); errno != unix.ENFILE {
		t.Errorf("open with O_TRUNC: %v, want ENFILE", errno)
	}
	for _, n := range []string{"old", "new"} {
		in := &fuse.CreateIn{Flags: truncate | unix.O_CREAT, Mode: unix.S_IFREG | 0o600}
		if errno, _ := call(c, wire.Create, 1, in, name(n)); errno != unix.ENFILE {
			t.Errorf("create %s: %v, want ENFILE", n, errno)
		}
	}
	if text, err := os.ReadFile(old); err != nil || string(text) != "kept" {
		t.Errorf("old has %q, %v; want it unchanged", text, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("new: %v, want no such file", err)
	}

	c.release(last)
	c.release(c.create(1, "new", unix.O_RDWR, 0o600).Fh)
	if fh := openAll(c, node); fh == 0 {
		t.Error("no file can be opened after one was closed")
	}
}

// openAll opens a file until the guest has as many files open as it may, and returns
// the last handle.
func openAll(c *client, node uint64) (last uint64) {
	c.t.Helper()
	for range 4096 {
		errno, p := call(c, wire.Open, node, &fuse.OpenIn{})
		if errno == unix.ENFILE {
			return last
		}
		if errno != 0 {
			c.t.Fatalf("open: %v", errno)
		}
		var out fuse.OpenOut
		copy(bytesOf(&out), p)
		last = out.Fh
	}
	c.t.Fatal("4096 opens, and no ENFILE")
	return 0
}
