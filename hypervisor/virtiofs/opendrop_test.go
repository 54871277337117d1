package virtiofs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// A file that the guest was opening when its mount was dropped does not stay open: the
// mount can be removed.
func TestOpenDuringDrop(t *testing.T) {
	share := t.TempDir()
	volume := filepath.Join(share, "volume")
	if err := os.Mkdir(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	mountTmpfs(t, volume)
	held := leased(t, filepath.Join(volume, "file"))
	server, front := serveDir(t, share, passthrough.Auto)
	c := rawClientOf(t, front).begin()
	file := c.mustLookup(c.mustLookup(1, "volume").NodeId, "file").NodeId
	opened := make(chan unix.Errno, 1)
	go func() {
		errno, _ := call(c, wire.Open, file, &fuse.OpenIn{Flags: unix.O_WRONLY})
		opened <- errno
	}()
	awaitBreaking(t, held)
	if err := server.Drop(t.Context(), "volume"); err != nil {
		t.Fatal(err)
	}
	if err := held.Close(); err != nil { // the open goes on
		t.Fatal(err)
	}
	if errno := <-opened; errno != unix.ESTALE {
		t.Errorf("open a file of a dropped mount: %v, want ESTALE", errno)
	}
	err := unix.Unmount(volume, 0)
	for end := time.Now().Add(2 * time.Second); errors.Is(err, unix.EBUSY) && time.Now().Before(end); err = unix.Unmount(volume, 0) {
		time.Sleep(time.Millisecond) // the answer comes before the last descriptor is closed
	}
	if err != nil {
		t.Errorf("unmount a dropped mount: %v", err)
	}
}

// leased makes a file with a lease: who opens it for writing waits until the lease
// ends with the file that is returned.
func leased(t *testing.T, path string) *os.File {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close() })
	if _, err := unix.FcntlInt(held.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		t.Fatal(err)
	}
	return held
}

// awaitBreaking waits until an open of a leased file waits.
func awaitBreaking(t *testing.T, held *os.File) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(held.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	inode := fmt.Sprintf(":%d ", st.Ino)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		locks, err := os.ReadFile("/proc/locks")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(locks)) {
			if strings.Contains(line, "BREAKING") && strings.Contains(line, inode) {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no open waits: %s", locks)
		}
	}
}
