package maker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/sizing"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

const (
	// niceness is that of the maker and its QEMU: beside pods that want the CPU
	// they get a tenth of it, which is enough for a guest to boot in time.
	niceness = 10
	// oomScore makes the host's kernel kill the maker before it kills pods.
	oomScore = "1000"
	// name is what ps shows, of 15 bytes at most.
	name = "kata-template"
	// hardEnd is how long after its timeout a maker ends whatever it is doing.
	hardEnd = time.Minute
)

// Run is the maker. args are the command-line arguments after Command: the
// configuration file, or "", and the template's key. SIGTERM ends it cleanly.
func Run(ctx context.Context, args []string, platform virtcontainers.Platform) error {
	if len(args) != 2 {
		return errNotByHand
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	defer time.AfterFunc(virtcontainers.TemplateTimeout+hardEnd, func() { os.Exit(1) }).Stop()
	lock, err := Settle(name)
	if err != nil {
		return err
	}
	return errors.Join(makeOne(ctx, args[0], factory.Key(args[1]), platform, lock), lock.Close())
}

var errNotByHand = errors.New("this command is for shims alone: use kata-runtime factory init")

// Settle makes this process, which a shim has just started, one in the
// background, with that name for ps, and returns the lock that it inherited.
func Settle(name string) (*factory.Lock, error) {
	f, err := settle(name)
	if err != nil {
		return nil, err
	}
	return factory.InheritLock(f), nil
}

// settle is Settle for any file that the process inherited.
func settle(name string) (*os.File, error) {
	home := os.Getenv(homeEnv)
	if home == "" {
		return nil, errNotByHand
	}
	_ = os.Unsetenv(homeEnv) // must not reach its children
	f, err := inherited()
	if err != nil {
		return nil, err
	}
	if err := leavePod([]byte(home), name); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func inherited() (*os.File, error) {
	if _, err := unix.FcntlInt(inheritedFD, unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("take over the inherited file: %w", err)
	}
	return os.NewFile(inheritedFD, "inherited"), nil
}

// leavePod moves this process out of the cgroups of the pod whose shim has started
// it, and lowers its priority below that of all pods. It is the only
// process of its process group, so the priority applies to all its threads
// (setpriority(2)).
func leavePod(home []byte, name string) error {
	if err := hostcgroup.Return("", home); err != nil {
		return fmt.Errorf("leave the pod's cgroups: %w", err)
	}
	if err := unix.Setpriority(unix.PRIO_PGRP, 0, niceness); err != nil {
		return os.NewSyscallError("setpriority", err)
	}
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0) // for ps: it would be "exe"
	return os.WriteFile("/proc/self/oom_score_adj", []byte(oomScore), 0)
}

// makeOne makes the template of a configuration, which is to have that key.
func makeOne(ctx context.Context, file string, key factory.Key, platform virtcontainers.Platform, lock *factory.Lock) error {
	cfg, err := config.Load(file)
	if err != nil {
		return err
	}
	leave := sizing.Confine(platform.CgroupRoot, cfg, platform.Accel)
	bounded, cancel := context.WithTimeout(ctx, virtcontainers.TemplateTimeout)
	defer cancel()
	_, err = virtcontainers.MakeTemplate(bounded, platform, cfg, virtcontainers.TemplateOptions{Lock: lock, Wanted: key})
	if ctx.Err() != nil {
		err = nil // it was asked to end
	}
	return errors.Join(err, leave(context.WithoutCancel(ctx)))
}
