package virtcontainers

import (
	"context"
	"errors"
	"io/fs"

	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// placeStandIn moves a container's stand-in into the cgroup that the engine has
// named for the container, with the container's memory limit: who looks there
// from the pid finds it. What the container uses is the guest's, and is not
// counted there; so all runs without it, too.
func (s *Sandbox) placeStandIn(ctx context.Context, c *Container, pid int) {
	spec := c.Bundle.Spec
	if spec.Linux == nil || spec.Linux.CgroupsPath == "" {
		return
	}
	if err := s.makeStandInCgroup(ctx, c, pid); err != nil {
		log.G(ctx).WithField("container", c.ID).WithError(err).Warn("the container's process on the host is not in the container's cgroup")
	}
}

func (s *Sandbox) makeStandInCgroup(ctx context.Context, c *Container, pid int) error {
	spec := c.Bundle.Spec
	cgroup, err := hostcgroup.NewContainer(s.platform.CgroupRoot, spec.Linux.CgroupsPath)
	if err != nil {
		return err
	}
	err = s.state.Update(func(r *persist.Record) {
		r.StandInCgroups = withEntry(s, r.StandInCgroups, c.ID, cgroup.Dir())
	})
	if err != nil {
		return err
	}
	if err = cgroup.Make(); err == nil {
		err = errors.Join(limitMemory(cgroup, spec.Linux.Resources), cgroup.Add(pid))
	}
	c.cgroup.Store(cgroup)
	return err
}

func limitMemory(cgroup *hostcgroup.Container, limits *specs.LinuxResources) error {
	if limits == nil || limits.Memory == nil || limits.Memory.Limit == nil {
		return nil
	}
	return cgroup.SetMemory(*limits.Memory.Limit)
}

// showLimits has the stand-in's cgroup follow an update.
func (c *Container) showLimits(ctx context.Context, limits *specs.LinuxResources) {
	cgroup := c.cgroup.Load()
	if cgroup == nil {
		return
	}
	err := limitMemory(cgroup, limits)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return // the container has ended
	}
	if err != nil {
		log.G(ctx).WithField("container", c.ID).WithError(err).Warn("the cgroup of the container's process on the host has not the new limit")
	}
}

// leaveCgroup removes the stand-in's cgroup; the stand-in has ended.
func (c *Container) leaveCgroup(ctx context.Context) error {
	cgroup := c.cgroup.Swap(nil)
	if cgroup == nil {
		return nil
	}
	return cgroup.Remove(context.WithoutCancel(ctx))
}
