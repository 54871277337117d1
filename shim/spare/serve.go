package spare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/containerd/log"

	"github.com/katabox/katabox/shim/manager"
	"github.com/katabox/katabox/virtcontainers/pool"
)

// serve makes the spare the shim of the pod in the order, until that ends.
func (s *spare) serve(ctx context.Context, r *pool.Request) error {
	p, err := s.become(r)
	if err == nil {
		err = r.Take()
	}
	if err != nil {
		return errors.Join(err, r.Close(), s.end())
	}
	listener, err := manager.Listener(r.Keep())
	if err != nil {
		return errors.Join(err, s.end())
	}
	if ctx, err = manager.OpenLog(ctx, p); err != nil {
		return errors.Join(err, listener.Close(), s.end())
	}
	if err := s.leave(ctx); err != nil {
		log.G(ctx).WithError(err).Warn("the cgroup of the spare machine is left")
	}
	removed := make(chan error, 1)
	go func() {
		<-s.machine.Left()
		removed <- s.entry.Remove()
	}()
	platform := s.host(ctx)
	platform.Spare = s.machine
	err = manager.ServeOn(ctx, p, platform, listener)
	return manager.EndLoggers(ctx, p, errors.Join(err, s.end(), <-removed))
}

// become makes this process what a daemon is that start starts: environment,
// directory, command line and name. The claimer has raised its priority, and
// sets its OOM score.
func (s *spare) become(r *pool.Request) (*manager.Params, error) {
	if len(r.Args) == 0 {
		return nil, errors.New("the order has no command line")
	}
	os.Clearenv()
	for _, variable := range r.Env {
		name, value, _ := strings.Cut(variable, "=")
		if err := os.Setenv(name, value); err != nil {
			return nil, fmt.Errorf("set environment: %w", err)
		}
	}
	if n, err := strconv.Atoi(os.Getenv("GOMAXPROCS")); err == nil && n != runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(n)
	}
	if err := os.Chdir(r.Dir); err != nil {
		return nil, err
	}
	p, err := manager.ParseArgs(r.Args[1:], os.Getenv)
	if err != nil {
		return nil, err
	}
	if p.Action != manager.ActionServe {
		return nil, fmt.Errorf("the order is to %s, not to serve", p.Action)
	}
	// Each has its own process group (hypervisor/child).
	for _, pid := range s.machine.Processes() {
		if err := manager.ShareNiceness(pid); err != nil {
			return nil, err
		}
	}
	return p, errors.Join(s.title.set(r.Args), setComm(r.Args[0]))
}
