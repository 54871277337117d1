package spawn

// #include <stdlib.h>
// #include "spawn.h"
import "C"

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// InitPlan is what the first process of a container is to be. Target, Namespaces and
// Stdio of its Plan are not used: it is in the calling thread's namespaces.
type InitPlan struct {
	Plan
	// NewPID gives it its own PID namespace. Otherwise it is in the thread's
	// for children.
	NewPID bool
	// NeedsHome leaves room in its environment for the HOME that Enter gives.
	NeedsHome bool
	// Mounts are made first, in the process's PID and cgroup namespaces.
	Mounts []Mount
}

// Mount is a mount as mount(2) has it.
type Mount struct {
	Source, Target, Type, Data string
	Flags                      uintptr
}

// MountError is the failure of one of an init's mounts.
type MountError struct {
	Index int // in InitPlan.Mounts
	Err   error
}

// Error implements error.
func (e *MountError) Error() string { return fmt.Sprintf("mount %d: %v", e.Index, e.Err) }

// Unwrap returns the errno.
func (e *MountError) Unwrap() error { return e.Err }

// Init is the first process of a container, before it executes its program. Its
// methods are called in their order; an error of any of them means that the
// process has ended or is about to. It must be reaped in any case.
type Init struct {
	plan    *InitPlan
	pid     int
	control *os.File
}

// Fork starts the process on the calling thread, which must be locked.
func (p *InitPlan) Fork() (*Init, error) {
	if err := errors.Join(p.check(), notDumpable()); err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make control socket: %w", err)
	}
	defer unix.Close(fds[1])
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, errors.Join(fmt.Errorf("make control socket: %w", err), unix.Close(fds[0]))
	}
	i := &Init{plan: p, control: os.NewFile(uintptr(fds[0]), "control")}
	var pins pins
	defer pins.Unpin()
	pid, err := C.spawn_init(p.encodeInit(&pins, fds[1]))
	runtime.KeepAlive(p) // its files are open until here
	if pid < 0 {
		return nil, errors.Join(fmt.Errorf("clone the container's first process: %w", err), i.control.Close())
	}
	i.pid = int(pid)
	return i, nil
}

func (p *InitPlan) encodeInit(pins *pins, control int) *C.struct_spawn_init {
	if p.NeedsHome {
		p.Env = append(p.Env, "HOME=") // replaced
	}
	paths := p.paths()
	plan := p.encode(pins, paths)
	plan.new_keyring = 1
	init := &C.struct_spawn_init{
		plan: *plan, control: C.int32_t(control), new_pid: flag(p.NewPID),
		errors: errnoTexts(), error_count: errnoCount,
	}
	if p.NeedsHome {
		init.home = (**C.char)(unsafe.Add(unsafe.Pointer(plan.envp), uintptr(len(p.Env)-1)*unsafe.Sizeof(plan.envp)))
	}
	init.mounts, init.mount_count = pinned(pins, p.Mounts, func(m Mount) C.struct_spawn_mount {
		return C.struct_spawn_mount{
			source: pins.text(m.Source), target: pins.text(m.Target), _type: pins.text(m.Type), data: pins.text(m.Data),
			flags: C.uint64_t(m.Flags),
		}
	})
	pins.Pin(init)
	return init
}

// errnoCount is above every errno (asm-generic/errno.h).
const errnoCount = 134

// errnoTexts are the texts of errno values, in C's memory.
var errnoTexts = sync.OnceValue(func() **C.char {
	array := C.malloc(errnoCount * C.size_t(unsafe.Sizeof(uintptr(0))))
	texts := unsafe.Slice((**C.char)(array), errnoCount)
	for i := range texts {
		texts[i] = C.CString(syscall.Errno(i).Error())
	}
	return (**C.char)(array)
})

// Pid is the process's, in the PID namespace of the caller.
func (i *Init) Pid() int { return i.pid }

// AwaitMounts returns when the mounts are made.
func (i *Init) AwaitMounts() error { return i.await(C.STEP_MOUNTED) }

// Enter gives the process its root directory, its stdio and, if it needs one, its
// HOME, and returns when it has found its program and waits for Execute. The files
// stay the caller's.
func (i *Init) Enter(root *os.File, stdio [3]*os.File, home string) error {
	order := "EHOME=" + home
	if len(order) > C.SPAWN_HOME_SIZE || strings.IndexByte(home, 0) >= 0 {
		return fmt.Errorf("HOME has %d bytes, at most %d are supported, without a NUL: %w", len(home), C.SPAWN_HOME_SIZE-len("HOME=")-1, unix.EINVAL)
	}
	rights := unix.UnixRights(int(stdio[0].Fd()), int(stdio[1].Fd()), int(stdio[2].Fd()), int(root.Fd()))
	if err := i.order(order, rights); err != nil {
		return err
	}
	return i.await(C.STEP_FOUND)
}

// executeWait bounds how long a process may take to execute its program: the file
// may be on a share that hangs.
const executeWait = 5 * time.Second

// Execute has the process execute its program, and returns when it has, or has told
// its stderr why it cannot and exits with 255, at the latest after executeWait.
func (i *Init) Execute() error {
	if err := i.order("X", nil); err != nil {
		return err
	}
	if err := i.await(C.STEP_EXECUTE); err != nil {
		return err
	}
	if err := i.control.SetReadDeadline(time.Now().Add(executeWait)); err != nil {
		return fmt.Errorf("wait for init: %w", err)
	}
	_, err := i.control.Read(make([]byte, 1)) // Its end is closed by execve(2) or exit(2).
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return errors.Join(err, i.Close())
}

// Close has the process end if it has not executed its program. It may be called
// more than once.
func (i *Init) Close() error {
	if err := i.control.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("close control socket: %w", err)
	}
	return nil
}

func (i *Init) order(text string, rights []byte) error {
	raw, err := i.control.SyscallConn()
	if err != nil {
		return fmt.Errorf("command init: %w", err)
	}
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		sent = unix.Sendmsg(int(fd), []byte(text), rights, nil, unix.MSG_NOSIGNAL)
		return !errors.Is(sent, unix.EAGAIN)
	})
	if err = errors.Join(err, sent); errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return ErrKilled
	}
	return err
}

// await returns when the process has come to a step.
func (i *Init) await(step C.int32_t) error {
	var result C.struct_spawn_result
	packet := unsafe.Slice((*byte)(unsafe.Pointer(&result)), unsafe.Sizeof(result))
	n, err := i.control.Read(packet)
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET):
		return ErrKilled
	case err != nil:
		return fmt.Errorf("wait for init: %w", err)
	case n != len(packet):
		return fmt.Errorf("wait for init: it sent %d bytes, want %d", n, len(packet))
	case result.error == 0 && result.step == step:
		return nil
	case result.error == 0:
		return fmt.Errorf("wait for init: it came to step %d, want %d", result.step, step)
	case result.step == C.STEP_MOUNT:
		return &MountError{Index: int(result.path), Err: syscall.Errno(result.error)}
	}
	return i.plan.failure(&result)
}
