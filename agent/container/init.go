package container

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// initProcess is a container's init, for execs to join. It stays the same when the
// init has ended and its PID is another process's.
type initProcess struct {
	pid    int
	fd     *os.File // a pidfd
	mounts *mountNamespace
}

// openInit must be called before the init is reaped.
func openInit(pid int) (initProcess, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return initProcess{}, fmt.Errorf("open init: %w", err)
	}
	init := initProcess{pid: pid, fd: os.NewFile(uintptr(fd), "init")}
	if init.mounts, err = openMounts(pid); err != nil {
		return initProcess{}, errors.Join(err, init.fd.Close())
	}
	return init, nil
}

// close releases the agent's references to the init, which has ended. Its error says
// why file systems stay mounted that should not. settled is as in
// mountNamespace.close.
func (i initProcess) close(settled func() bool) error {
	err := i.mounts.close(settled)
	_ = i.fd.Close()
	return err
}

// openRoot opens the root directory of the init's mount namespace, which is that of
// further processes there. It is the init's as well, unless that has called
// chroot(2). If it does so meanwhile, its new root is opened: no harm to any but its
// container.
func (i initProcess) openRoot() (*os.File, error) {
	path := fmt.Sprintf("/proc/%d/root", i.pid)
	inNamespace, err := os.Readlink(path)
	if err != nil {
		return nil, err
	}
	if inNamespace != "/" {
		return i.joinRoot()
	}
	return i.openOwn("root", unix.O_PATH|unix.O_DIRECTORY)
}

// openOwn opens what the init's directory in /proc has by that name, and not that of
// another process with its PID.
func (i initProcess) openOwn(name string, flags int) (*os.File, error) {
	path := fmt.Sprintf("/proc/%d/%s", i.pid, name)
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	if err := i.check(); err != nil { // it was another process's
		return nil, errors.Join(fmt.Errorf("find init: %w", err), file.Close())
	}
	return file, nil
}

// check fails if the init has been reaped. It may be called concurrently with close.
func (i initProcess) check() error {
	raw, err := i.fd.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.PidfdSendSignal(int(fd), 0, nil, 0) })
	return errors.Join(err, failed)
}

// exiting is set in the flags of a process that has begun to end (include/linux/sched.h,
// PF_EXITING).
const exiting = 0x4

// isEnding reports whether the process has ended or has begun to. From then on it has
// no root directory, and later its PID namespace takes no process, although the kernel
// may wait for those that are there before the pidfd reports the end
// (kernel/pid_namespace.c, zap_pid_ns_processes).
func (i initProcess) isEnding() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", i.pid))
	if i.check() != nil { // It was another process's.
		return true
	}
	if err != nil {
		return false
	}
	afterName := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const flags = 6 // proc_pid_stat(5): the ninth field, and the third is the first here
	if len(afterName) <= flags {
		return false
	}
	n, err := strconv.ParseUint(afterName[flags], 10, 32)
	return err == nil && n&exiting != 0
}

// joinRoot opens the root directory of the init's mount namespace on a thread that
// joins it.
func (i initProcess) joinRoot() (root *os.File, err error) {
	thread, err := newThread(0)
	if err != nil {
		return nil, err
	}
	defer thread.close()
	err = thread.do(func() error {
		if err := unix.Setns(int(i.fd.Fd()), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("join the init's mount namespace: %w", err)
		}
		root, err = openTop()
		return err
	})
	return root, err
}

// openTop opens the calling thread's root directory.
func openTop() (*os.File, error) {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open root: %w", err)
	}
	return os.NewFile(uintptr(fd), "/"), nil
}

// lookupTries bounds how often a lookup is repeated because a rename raced with
// it (openat2(2), EAGAIN).
const lookupTries = 128

// openInside opens a file below root, which a container's processes may change at
// any moment: no link leads out of it.
func openInside(root *os.File, path string, flags uint64) (*os.File, error) {
	how := &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for try := 1; ; try++ {
		fd, err := unix.Openat2(int(root.Fd()), path, how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), filepath.Join("/", path)), nil
		case try < lookupTries && (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)):
		default:
			return nil, &os.PathError{Op: "open", Path: filepath.Join("/", path), Err: err}
		}
	}
}

// openRegular opens a file below root for reading once it is known to be a regular
// one: no rule of the container's cgroup keeps the agent from opening a device.
func openRegular(root *os.File, path string) (*os.File, error) {
	handle, err := openInside(root, path, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	var info unix.Stat_t
	if err := unix.Fstat(int(handle.Fd()), &info); err != nil {
		return nil, fmt.Errorf("inspect %s: %w", handle.Name(), err)
	}
	if info.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%s is not a regular file", handle.Name())
	}
	return reopen(handle, unix.O_RDONLY|unix.O_NONBLOCK) // It does not wait for a lease to end.
}
