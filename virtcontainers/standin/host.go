package standin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/child"
	"github.com/katabox/katabox/internal/mountns"
)

// rootOptions bound the file system that holds the program and mount points.
const rootOptions = "mode=0711,size=64k,nr_inodes=64"

// programDir holds the program, and links to it with the stand-ins' names.
const programDir = "/bin"

// Host starts the stand-ins of one pod. Its methods may be called from several
// goroutines.
type Host struct{ thread *child.Thread }

// NewHost makes the pod's thread. scratch is any directory of the host; it is
// not changed. Close ends the thread.
func NewHost(scratch string) (*Host, error) {
	thread, err := child.StartThread(func() error { return enter(scratch) })
	if err != nil {
		return nil, fmt.Errorf("make a place for stand-in processes: %w", err)
	}
	return &Host{thread}, nil
}

// enter moves the calling thread into a namespace with the program and a mount
// point, and nothing else.
func enter(scratch string) error {
	if err := mountns.Enter(scratch, rootOptions); err != nil {
		return err
	}
	for _, dir := range []string{viewDir, programDir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	// A process that another goroutine forks meanwhile would inherit the file
	// open for writing, and the program could not be run (ETXTBSY).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(programDir+"/-", program(), 0o500)
}

// explain makes the end of the thread that of the pod.
func explain(err error) error {
	if errors.Is(err, child.ErrThreadClosed) {
		return fmt.Errorf("the pod has ended: %w: %w", err, errdefs.ErrFailedPrecondition)
	}
	return err
}

// Close ends the thread. The kernel kills the remaining stand-ins; their Done
// is closed when they have ended. It waits for a stand-in that is being started
// as long as ctx allows. It may be called again.
func (h *Host) Close(ctx context.Context) error {
	if err := h.thread.Close(ctx); err != nil {
		return fmt.Errorf("end stand-in processes: %w", err)
	}
	return nil
}

// fork starts the program as opts describe; it runs on the host's thread. The
// child has a copy of the thread's mount namespace.
func fork(opts Options, report *os.File) (*os.Process, error) {
	namespaces := uintptr(unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC)
	if opts.Network == nil {
		namespaces |= unix.CLONE_NEWNET
	} else if err := unix.Setns(int(opts.Network.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter network namespace: %w", err)
	}
	if err := setHostname(opts.Hostname); err != nil {
		return nil, err
	}
	if err := makeView(opts.View); err != nil {
		return nil, err
	}
	// The child keeps its copy.
	defer unix.Unmount(viewDir, unix.MNT_DETACH) //nolint:errcheck // this thread is alone in the namespace
	name := programDir + "/" + commandName(opts.Args)
	if err := os.Link(programDir+"/-", name); err != nil {
		return nil, err
	}
	defer os.Remove(name)
	return os.StartProcess(name, opts.Args, &os.ProcAttr{
		Env:   opts.Env,
		Files: []*os.File{opts.null, opts.null, opts.null, report},
		Sys:   &syscall.SysProcAttr{Cloneflags: namespaces, Setsid: true, Pdeathsig: unix.SIGKILL},
	})
}

// setHostname gives the thread, and with it the next child, a UTS namespace.
func setHostname(name string) error {
	if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	return os.NewSyscallError("sethostname", unix.Sethostname([]byte(name)))
}
