package standin

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// endWait bounds the wait for a killed process's end.
const endWait = 5 * time.Second

// Join makes the cgroup that the engine named for the container, gives it the
// container's memory limit and moves the process there, so that the limit is
// found from the pid. What the container uses is the guest's, and is not
// counted there. Nor is the process's memory, which was charged where it started:
// the kubelet takes a container whose cgroup shows neither CPU time nor anonymous
// memory for one that has ended, and then shows the engine's statistics, which are
// right (pkg/kubelet/stats, isContainerTerminated). The process owns the cgroup even
// after an error; End removes it. Join is called once at most.
func (p *Process) Join(cgroup *hostcgroup.Container, limits *specs.LinuxResources) error {
	p.cgroup.Store(cgroup)
	if err := cgroup.Make(); err != nil {
		return err
	}
	return errors.Join(limitMemory(cgroup, limits), cgroup.Add(p.pid))
}

// Limit has the process's cgroup follow an update of the container's limits.
// Without a cgroup, or after the process's end, it does nothing.
func (p *Process) Limit(limits *specs.LinuxResources) error {
	cgroup := p.cgroup.Load()
	if cgroup == nil {
		return nil
	}
	err := limitMemory(cgroup, limits)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil // removed meanwhile
	}
	return err
}

func limitMemory(cgroup *hostcgroup.Container, limits *specs.LinuxResources) error {
	if limits == nil || limits.Memory == nil || limits.Memory.Limit == nil {
		return nil
	}
	return cgroup.SetMemory(*limits.Memory.Limit)
}

// End kills the process, waits for its end and removes its cgroup; ctx's end
// does not stop that. It may be called again.
func (p *Process) End(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	wait, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	err := p.kill(wait)
	if cgroup := p.cgroup.Swap(nil); cgroup != nil {
		err = errors.Join(err, cgroup.Remove(ctx))
	}
	return err
}
