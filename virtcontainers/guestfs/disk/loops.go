package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// checkLoops refuses a file that the host has mounted through a loop device:
// two kernels would write its file system, or one would write while the other
// reads. Both may read it. A loop device that is open but not mounted is no
// obstacle: it may be about to disappear.
func (f *found) checkLoops(readOnly bool) error {
	backed, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return fmt.Errorf("list loop devices: %w", err)
	}
	for _, dir := range backed {
		node := filepath.Join("/dev", filepath.Base(filepath.Dir(dir)))
		flags, ours := f.loopFlags(node)
		if !ours || readOnly && flags&unix.LO_FLAGS_READ_ONLY != 0 || !isMounted(node) {
			continue
		}
		return fmt.Errorf("its loop device %s is mounted on the host or otherwise in use there, want one that is free, or both read-only: %w", node, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// loopFlags returns the flags of a loop device (loop(4)); ours reports whether
// it is backed by the file. It is false for a device that has disappeared
// meanwhile.
func (f *found) loopFlags(node string) (flags uint32, ours bool) {
	dev, err := os.OpenFile(node, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, false
	}
	defer dev.Close()
	info, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
	if err != nil {
		return 0, false
	}
	return info.Flags, info.Device == f.key.dev && info.Inode == f.key.inode
}

// isMounted reports whether a device is held exclusively (open(2), O_EXCL).
func isMounted(node string) bool {
	dev, err := os.OpenFile(node, os.O_RDONLY|unix.O_EXCL|unix.O_NONBLOCK, 0)
	if err == nil {
		dev.Close()
	}
	return errors.Is(err, unix.EBUSY)
}
