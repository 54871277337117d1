// Package hungfs mounts file systems that hang, like those of a dead server; tests
// only.
package hungfs

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Mount mounts a file system at a new directory. Every call to it blocks until
// release, and then fails. When the test ends, it is released and unmounted.
func Mount(t testing.TB) (dir string, release func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir = t.TempDir()
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("this test needs FUSE in this machine's kernel: %v", err)
	}
	// The kernel's first request is never answered, and all others wait for that.
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", server.Fd())
	if err := unix.Mount("katabox-hung", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Fatal(err, server.Close())
	}
	release = sync.OnceFunc(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		release()
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, release
}
