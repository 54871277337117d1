package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shareUses are what "probe file" can do with a file of a share that differs from what a
// file system of the host's kernel does.
var shareUses = map[string]func(f *os.File, out io.Writer) error{
	"collapse": func(f *os.File, _ io.Writer) error {
		return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_COLLAPSE_RANGE, 0, 4096)
	},
	"insert": func(f *os.File, _ io.Writer) error {
		return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_INSERT_RANGE, 0, 4096)
	},
	"lsattr": func(f *os.File, _ io.Writer) error {
		_, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		return err
	},
	"chattr": func(f *os.File, _ io.Writer) error {
		return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0)
	},
	"filefrag": listExtents,
	"epoll":    awaitFile,
	"preadv2": func(f *os.File, _ io.Writer) error {
		_, err := unix.Preadv2(int(f.Fd()), [][]byte{make([]byte, 1)}, 0, unix.RWF_NOWAIT)
		return err
	},
	"pwritev2": func(f *os.File, _ io.Writer) error {
		_, err := unix.Pwritev2(int(f.Fd()), [][]byte{{'x'}}, 0, unix.RWF_NOWAIT)
		return err
	},
	"fanotify": watchByID,
	"setgid":   createSetGID,
}

// fiemap is linux/fiemap.h's struct fiemap without extents.
type fiemap struct {
	start, length                         uint64
	flags, mapped, extentCount, reserved0 uint32
}

const fsIocFiemap = 0xC020660B // linux/fs.h, _IOWR('f', 11, struct fiemap)

// listExtents counts a file's extents.
func listExtents(f *os.File, _ io.Writer) error {
	m := fiemap{length: ^uint64(0)}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsIocFiemap, uintptr(unsafe.Pointer(&m))); errno != 0 {
		return errno
	}
	return nil
}

// awaitFile waits for a file with epoll, and prints how many files are ready.
func awaitFile(f *os.File, out io.Writer) error {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	defer func() { _ = unix.Close(epoll) }()
	want := &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT, Fd: int32(f.Fd())}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, int(f.Fd()), want); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	n, err := unix.EpollWait(epoll, make([]unix.EpollEvent, 1), 0)
	if err != nil {
		return os.NewSyscallError("epoll_wait", err)
	}
	_, err = fmt.Fprintln(out, n)
	return err
}

// watchByID asks fanotify for a file's events, by the ids of files.
func watchByID(f *os.File, _ io.Writer) error {
	group, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_FID|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if err != nil {
		return os.NewSyscallError("fanotify_init", err)
	}
	defer func() { _ = unix.Close(group) }()
	return os.NewSyscallError("fanotify_mark", unix.FanotifyMark(group, unix.FAN_MARK_ADD, unix.FAN_MODIFY, unix.AT_FDCWD, f.Name()))
}

// createSetGID creates a file with the set-group-ID bit beside f, as a user who has the
// directory's group, 1234, as a supplementary group; it prints the file's mode, and that
// after chmod(2).
func createSetGID(f *os.File, out io.Writer) error {
	for _, err := range []error{unix.Setgroups([]int{1234}), unix.Setgid(1000), unix.Setuid(1000)} {
		if err != nil {
			return fmt.Errorf("become a user: %w", err)
		}
	}
	const mode = 0o2755
	unix.Umask(0)
	made := filepath.Join(filepath.Dir(f.Name()), "made")
	fd, err := unix.Open(made, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, mode)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	defer func() { _ = unix.Close(fd) }()
	var stat [2]unix.Stat_t
	for i := range stat {
		if err := unix.Fstat(fd, &stat[i]); err != nil {
			return os.NewSyscallError("fstat", err)
		}
		if err := unix.Fchmod(fd, mode); err != nil {
			return os.NewSyscallError("fchmod", err)
		}
	}
	_, err = fmt.Fprintf(out, "%o %o\n", stat[0].Mode&0o7777, stat[1].Mode&0o7777)
	return err
}
