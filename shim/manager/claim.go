package manager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/engine"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/pool"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// claimTimeout bounds the time until a spare has become a daemon. A new daemon
// takes less than that.
const claimTimeout = 500 * time.Millisecond

// startSpare makes a spare shim the daemon that the command would start. It
// reports false if there is none that fits, or it did not become that daemon: it
// is ended then.
func startSpare(p *Params, daemon *exec.Cmd, address string) bool {
	if _, err := os.Stat(p.Pool.Dir); err != nil || engine.For(p.Namespace, p.GRPCAddress).NoPool {
		return false // usually there is no pool, which must cost nothing
	}
	ctx, cancel := context.WithTimeout(context.Background(), claimTimeout)
	defer cancel()
	claim, err := claimSpare(ctx, p)
	if claim == nil {
		note(p, err)
		return false
	}
	if err := transform(p, claim, daemon, address); err != nil {
		note(p, errors.Join(err, claim.End()))
		_ = os.Remove(filepath.Join(p.Bundle, bundle.PIDFile))
		return false
	}
	return true
}

// claimSpare takes a spare that fits; nil if there is none.
func claimSpare(ctx context.Context, p *Params) (*pool.Claim, error) {
	cgroups, err := hostcgroup.Self()
	if err != nil {
		return nil, err
	}
	file, err := config.Find(p.configPath)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // the daemon will say it
	}
	name, err := pool.NameOf(p.GRPCAddress, file, cgroups)
	if err != nil {
		return nil, err
	}
	return p.Pool.Claim(ctx, name)
}

// transform makes a claimed spare the daemon. It serves once the bundle names
// it: a start that dies before leaves no daemon.
func transform(p *Params, claim *pool.Claim, daemon *exec.Cmd, address string) error {
	pid := claim.Process.PID
	if err := ShareNiceness(pid); err != nil {
		return err
	}
	order := pool.Order{Args: daemon.Args, Env: daemon.Env, Dir: daemon.Dir}
	if err := claim.Give(order, daemon.ExtraFiles[0]); err != nil {
		return err
	}
	if err := announce(p, pid, address); err != nil {
		return err
	}
	return claim.Begin()
}

// note writes into the bundle's log why a spare could not be used.
func note(p *Params, err error) {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return
	}
	w, openErr := openLogFile(filepath.Join(p.Bundle, logFile))
	if openErr != nil {
		return
	}
	fmt.Fprintf(w, "time=%q level=warning msg=\"a spare shim could not be used, another is started\" error=%q sandbox=%s\n",
		time.Now().Format(time.RFC3339Nano), err, p.ID)
}

// ShareNiceness gives this process's nice value to all threads of a process
// group.
func ShareNiceness(group int) error {
	raised, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return os.NewSyscallError("getpriority", err)
	}
	nice := 20 - raised // the system call's result is never negative (getpriority(2))
	return os.NewSyscallError("setpriority", unix.Setpriority(unix.PRIO_PGRP, group, nice))
}
