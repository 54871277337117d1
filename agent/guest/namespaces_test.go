package guest

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A container's bind mount of these has the flags of its source unless it names some.
func TestPinnedMountsHaveNoFlags(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // The thread ends with its mount namespace.
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			t.Error(err)
			return
		}
		if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
			t.Error(err)
			return
		}
		for _, fstype := range []string{"mqueue", "sysfs"} {
			at := filepath.Join(dir, fstype)
			var st unix.Statfs_t
			if err := mountOwn(fstype, at); err != nil {
				t.Error(err)
			} else if err := unix.Statfs(at, &st); err != nil {
				t.Error(err)
			} else if got := st.Flags &^ (unix.ST_RELATIME | stValid); got != 0 {
				t.Errorf("%s has flags %#x, want none", fstype, got)
			}
		}
	}()
	<-done
}

// stValid is ST_VALID (include/linux/statfs.h).
const stValid = 0x20
