package maker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers"
)

// Command is the first argument of a maker, which no engine passes.
const Command = "make-template"

const (
	// lockFD is the store's lock in a maker.
	lockFD = 3
	// homeEnv holds the cgroups that a maker goes to.
	homeEnv = "KATABOX_MAKER_CGROUPS"
)

// Start is virtcontainers.StartMaker: it starts this program, even if the file of
// that name has been replaced meanwhile.
func Start(order virtcontainers.TemplateOrder) (func(context.Context) error, error) {
	cmd := exec.Command("/proc/self/exe", Command)
	cmd.Args = []string{os.Args[0], Command, order.Config}
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), homeEnv+"="+string(order.Home))
	cmd.ExtraFiles = []*os.File{order.Lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil { // stdin, stdout and stderr are /dev/null
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
