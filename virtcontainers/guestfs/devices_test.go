package guestfs

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// A container starts without a disk that only the configuration names, if the disk
// is busy, gone or write-protected.
func TestUnusable(t *testing.T) {
	for err, want := range map[error]bool{
		errors.New("QEMU refused it"): false, unix.EIO: false, unix.EMFILE: false,
		&os.PathError{Op: "open", Path: "/dev/sr0", Err: unix.ENOMEDIUM}:      true,
		&os.PathError{Op: "open", Path: "/dev/mmcblk0boot0", Err: unix.EROFS}: true,
		&os.PathError{Op: "open", Path: "/dev/sdz", Err: unix.ENOENT}:         true,
		errdefs.ErrFailedPrecondition:                                         true,
		errdefs.ErrResourceExhausted:                                          true,
		errdefs.ErrNotFound:                                                   true,
	} {
		if got := unusable(fmt.Errorf("attach: %w", err)); got != want {
			t.Errorf("%v: unusable %v, want %v", err, got, want)
		}
	}
	if unusable(nil) {
		t.Error("a disk that was attached")
	}
}
