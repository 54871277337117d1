package maker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers"
)

// The first arguments of such processes, which no engine passes.
const (
	Command       = "make-template"
	SpareCommand  = "spare"
	KeeperCommand = "keep-template"
)

const (
	// inheritedFD is what a process works with: the store's lock, or for a keeper a
	// template's memory.
	inheritedFD = 3
	// homeEnv holds the cgroups that the process goes to.
	homeEnv = "KATABOX_MAKER_CGROUPS"
	// titleRoom is how many bytes longer than now a spare's command line can
	// become: it is replaced in place by that of a pod's shim.
	titleRoom = 1024
)

// Start is virtcontainers.StartMaker: it starts this program, even if the file of
// that name has been replaced meanwhile.
func Start(order virtcontainers.TemplateOrder) (func(context.Context) error, error) {
	cmd := command(order.Lock, order.Home, Command, order.Config, string(order.Key))
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
	cmd := command(order.Lock, order.Home, SpareCommand, order.Config, order.Engine, strings.Repeat(" ", titleRoom))
	cmd.SysProcAttr.Cloneflags = unix.CLONE_PARENT
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the process that makes a spare machine: %w", err)
	}
	return cmd.Process.Release()
}

// StartKeeper is virtcontainers.Platform's: it starts a process that keeps a template's
// memory, and which outlives this one.
func StartKeeper(order virtcontainers.KeepOrder) error {
	cmd := command(order.Memory, order.Home, KeeperCommand, order.Store.Dir, string(order.Key), strconv.FormatUint(uint64(order.Sum), 10))
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the process that keeps a template's memory: %w", err)
	}
	go func() { // while this process runs
		// A signal ends it when the template is removed.
		if err := cmd.Wait(); err != nil && cmd.ProcessState.Exited() {
			log.L.WithError(err).WithField("template", order.Key).Warn("the process that keeps a template's memory has failed: the next pod copies it again")
		}
	}()
	return nil
}

// command is this program with other arguments, in its own session, with one file,
// and no other: stdin, stdout and stderr are /dev/null. home is the cgroups that it goes to.
func command(inherits *os.File, home []byte, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{os.Args[0]}, args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), homeEnv+"="+string(home))
	cmd.ExtraFiles = []*os.File{inherits}
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
