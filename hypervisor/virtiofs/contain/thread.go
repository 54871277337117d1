package contain

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Jail is what threads are confined to. The caller owns its files, which must
// stay open while threads enter.
type Jail struct {
	// Mounts is the mount namespace (/proc/PID/ns/mnt), and Root the directory
	// in it that becomes the root, opened with O_PATH.
	Mounts, Root *os.File
	// Descriptors is this process's /proc/self/fd, a directory.
	Descriptors *os.File
	// Peer, if not nil, is a process whose memory the threads may access.
	Peer *Peer
}

// Peer is a process of another user. A thread may access its memory because it
// takes that user and group as its real ones (ptrace(2), "Ptrace access mode
// checking"); its effective ones, and those for files, stay root's.
type Peer struct {
	PID      int
	UID, GID uint32
}

// join makes the calling thread one of the peer's user.
func (p *Peer) join() error {
	const keep = ^uintptr(0)
	for _, call := range []struct {
		number uintptr
		id     uint32
	}{{unix.SYS_SETRESGID, p.GID}, {unix.SYS_SETRESUID, p.UID}} {
		if _, _, errno := unix.RawSyscall(call.number, uintptr(call.id), keep, keep); errno != 0 {
			return fmt.Errorf("take the ids of process %d: %w", p.PID, errno)
		}
	}
	return nil
}

// check returns an error if the calling thread may not access the peer's
// memory. It reads where no process has memory.
func (p *Peer) check() error {
	var b [1]byte
	local, remote := []unix.Iovec{{Base: &b[0], Len: 1}}, []unix.RemoteIovec{{Base: 0, Len: 1}}
	if _, err := unix.ProcessVMReadv(p.PID, local, remote, 0); !errors.Is(err, unix.EFAULT) {
		return fmt.Errorf("access the memory of process %d: %w", p.PID, err)
	}
	return nil
}

// Probe returns an error if a confined thread could not access the peer's
// memory. It uses up the calling thread, as Enter does.
func (p *Peer) Probe() error {
	return errors.Join(p.join(), limitCapabilities(), p.check())
}

// Enter permanently confines the calling thread. The caller has locked its
// goroutine to the thread and must never unlock it. After an error the thread
// is partly confined, and must not be used. The whole process becomes undumpable
// (PR_SET_DUMPABLE in prctl(2)).
func (j Jail) Enter() error {
	// Separate working and root directories for the thread (setns(2)).
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare root directory: %w", err)
	}
	if err := unix.Setns(int(j.Mounts.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the share's mount namespace: %w", err)
	}
	if err := errors.Join(unix.Fchdir(int(j.Root.Fd())), unix.Chroot(".")); err != nil {
		return fmt.Errorf("change root to the share: %w", err)
	}
	if err := unix.Fchdir(int(j.Descriptors.Fd())); err != nil {
		return fmt.Errorf("change directory to the descriptors: %w", err)
	}
	unix.Umask(0)
	if j.Peer != nil {
		if err := j.Peer.join(); err != nil {
			return err
		}
	}
	if err := hideMemory(); err != nil {
		return err
	}
	if err := limitCapabilities(); err != nil {
		return err
	}
	if j.Peer != nil {
		if err := j.Peer.check(); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return filterCalls(j.Peer)
}

// hideMemory denies the process's memory to every process without CAP_SYS_PTRACE.
// Otherwise a root process whose capabilities include the thread's could attach to the
// thread, such as the thread of another pod (kernel/ptrace.c, __ptrace_may_access). The
// process then writes no core. A change of a thread's ids for files keeps this, unless
// fs.suid_dumpable is 1.
func hideMemory() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the process's memory inaccessible to others: %w", err)
	}
	return nil
}

// OpenDescriptors opens this process's /proc/self/fd for Jail, as a detached
// mount: otherwise ".." of a thread's working directory would lead through
// /proc to the host's root.
func OpenDescriptors() (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, "/proc/self/fd", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: "/proc/self/fd", Err: err}
	}
	return os.NewFile(uintptr(fd), "/proc/self/fd"), nil
}
