package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/intime"
)

// identity identifies a block device by its number, or a file by its file
// system's number and its inode.
type identity struct {
	device     bool
	dev, inode uint64
}

// String returns a text for errors about a disk whose path may have changed.
func (i identity) String() string {
	if i.device {
		return fmt.Sprintf("(block device %d:%d)", unix.Major(i.dev), unix.Minor(i.dev))
	}
	return fmt.Sprintf("(inode %d of file system %d:%d)", i.inode, unix.Major(i.dev), unix.Minor(i.dev))
}

// found is a file or block device that was looked up but not opened: opening a
// device can have side effects.
type found struct {
	path string
	key  identity
	fd   int // of O_PATH
}

// find looks a source up. Close must follow.
func find(path string) (*found, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", err, errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	f := &found{path: path, fd: fd}
	if err := f.identify(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *found) identify() error {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		f.key = identity{dev: st.Dev, inode: st.Ino}
	case unix.S_IFBLK:
		f.key = identity{device: true, dev: st.Rdev}
	default:
		return fmt.Errorf("its file type is %#o, want a regular file or a block device: %w", st.Mode&unix.S_IFMT, errdefs.ErrInvalidArgument)
	}
	return nil
}

// Close closes the O_PATH descriptor.
func (f *found) Close() error { return unix.Close(f.fd) }

// opened is an open file or block device, and its sizes as a disk.
type opened struct {
	*os.File
	blocks blockSizes
	length uint64 // in bytes
}

// openIn opens what was found and checks its length. It waits no longer than ctx: the
// disk may hang, or the file system that has the file.
func (f *found) openIn(ctx context.Context, readOnly bool, want blockSizes) (*opened, error) {
	fd, err := unix.FcntlInt(uintptr(f.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	copied := os.NewFile(uintptr(fd), f.path) // f may be closed before the disk answers
	return intime.Call(ctx, func() (*opened, error) {
		defer copied.Close()
		own := &found{path: f.path, key: f.key, fd: int(copied.Fd())}
		return own.openSized(readOnly, want)
	}, func(o *opened) { _ = o.Close() })
}

func (f *found) openSized(readOnly bool, want blockSizes) (*opened, error) {
	file, err := f.open(readOnly)
	if err != nil {
		return nil, err
	}
	o := &opened{File: file}
	if o.blocks, err = want.of(file, f.key.device); err == nil {
		o.length, err = f.length()
	}
	if err == nil {
		err = checkLength(o.length, o.blocks.logical)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return o, nil
}

// open opens what was found without using its path, which may have changed
// meanwhile.
func (f *found) open(readOnly bool) (*os.File, error) {
	if f.key.device {
		return f.openDevice(readOnly)
	}
	if err := f.checkLoops(readOnly); err != nil {
		return nil, err
	}
	return f.reopen(access(readOnly))
}

func access(readOnly bool) int {
	if readOnly {
		return unix.O_RDONLY
	}
	return unix.O_RDWR
}

// openDevice opens a block device unless the host uses it: has mounted it,
// swaps to it, or made it part of another device (open(2), O_EXCL). A writable
// disk stays held that way: the VMM gets this open file, and the host cannot
// mount the device before the machine has released it. A read-only disk is not
// held. A device that cannot be written at all (blockdev --setro) may be read
// even while it is in use.
func (f *found) openDevice(readOnly bool) (*os.File, error) {
	alone, err := f.reopen(access(readOnly) | unix.O_EXCL)
	switch {
	case errors.Is(err, unix.EBUSY) && !readOnly:
		return nil, f.inUse("")
	case errors.Is(err, unix.EBUSY):
		return f.openUsed()
	case err != nil || !readOnly:
		return alone, err
	}
	defer alone.Close()
	return f.reopen(unix.O_RDONLY)
}

func (f *found) openUsed() (*os.File, error) {
	file, err := f.reopen(unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	fixed, err := unix.IoctlGetInt(int(file.Fd()), unix.BLKROGET)
	if err == nil && fixed == 0 {
		err = f.inUse(", and can be written there (blockdev --setro ends that)")
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func (f *found) inUse(more string) error {
	return fmt.Errorf("block device %d:%d is mounted on the host or otherwise in use there%s, want one that is free: %w",
		unix.Major(f.key.dev), unix.Minor(f.key.dev), more, errdefs.ErrFailedPrecondition)
}

// reopen reopens the file through its link in /proc/self/fd (proc(5)).
func (f *found) reopen(flags int) (*os.File, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.fd), flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	return os.NewFile(uintptr(fd), f.path), nil
}
