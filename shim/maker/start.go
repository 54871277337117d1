package maker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers"
)

// The first arguments of such processes, which no engine passes.
const (
	Command      = "make-template"
	SpareCommand = "spare"
)

const (
	// lockFD is the store's lock in a maker.
	lockFD = 3
	// homeEnv holds the cgroups that a maker goes to.
	homeEnv = "KATABOX_MAKER_CGROUPS"
	// titleRoom is how many bytes longer than now a spare's command line can
	// become: it is replaced in place by that of a pod's shim.
	titleRoom = 1024
)

// Start is virtcontainers.StartMaker: it starts this program, even if the file of
// that name has been replaced meanwhile.
func Start(order virtcontainers.TemplateOrder) (func(context.Context) error, error) {
	cmd := command(order, Command, order.Config, string(order.Key))
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the process that makes a template: %w", err)
	}
	return func(ctx context.Context) error {
		if err := awaitEnd(ctx, cmd.Process.Pid); err != nil {
			return errors.Join(err, cmd.Process.Release())
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("the process that made the template ended: %w", err)
		}
		return nil
	}, nil
}

// StartSpare starts a process that makes a spare machine and waits with it
// for a pod (package spare). It is a child of this process's parent: it may
// live longer than this process, as another pod's shim.
func StartSpare(order virtcontainers.TemplateOrder) error {
	cmd := command(order, SpareCommand, order.Config, order.Engine, strings.Repeat(" ", titleRoom))
	cmd.SysProcAttr.Cloneflags = unix.CLONE_PARENT
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the process that makes a spare machine: %w", err)
	}
	return cmd.Process.Release()
}

// command is this program with other arguments, in its own session, with the
// order's lock and no other file: stdin, stdout and stderr are /dev/null.
func command(order virtcontainers.TemplateOrder, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{os.Args[0]}, args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), homeEnv+"="+string(order.Home))
	cmd.ExtraFiles = []*os.File{order.Lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// awaitEnd waits until a child of this process has ended, without reaping it: its
// pidfd is readable then (pidfd_open(2)).
func awaitEnd(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	err = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
