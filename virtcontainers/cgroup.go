package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/resource"
	"github.com/katabox/katabox/virtcontainers/resource/hostcgroup"
)

// cgroup is the pod's cgroups on the host.
type cgroup struct {
	*hostcgroup.Cgroup
	// entered is closed when this process has moved into them, or could not:
	// enterErr. The kernel may take longer for the move than a share and a
	// machine take to start, which need not wait for it.
	entered  chan struct{}
	enterErr error
}

// await waits until this process has moved.
func (c *cgroup) await(ctx context.Context) error {
	select {
	case <-c.entered:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the move into the pod's cgroup: %w", context.Cause(ctx))
	}
}

// openCgroup makes the pod's cgroups, if the engine has named a place for
// them, and begins to move this process there.
func (s *Sandbox) openCgroup(ctx context.Context) error {
	if s.opts.CgroupsPath == "" {
		return nil
	}
	return s.orWithoutCgroup(ctx, s.makeCgroup(ctx))
}

func (s *Sandbox) makeCgroup(ctx context.Context) error {
	made, err := hostcgroup.New(hostcgroup.Options{
		Root: s.platform.CgroupRoot, Path: s.opts.CgroupsPath, SandboxID: s.ID,
		Only: s.opts.Config.Runtime.SandboxCgroupOnly,
	})
	if err != nil {
		return err
	}
	if err := s.state.Update(func(r *persist.Record) { r.Cgroups = made.Dirs() }); err != nil {
		return err
	}
	if err := made.Make(); err != nil {
		return errors.Join(err, made.Remove(context.WithoutCancel(ctx)))
	}
	c := &cgroup{Cgroup: made, entered: make(chan struct{})}
	go func() {
		defer close(c.entered)
		c.enterErr = made.Add(os.Getpid())
	}()
	s.cgroup = c
	return nil
}

// orWithoutCgroup makes an error of the cgroups a warning, but for a pod that
// must be in its own: engines, too, run without cgroups where there are none.
func (s *Sandbox) orWithoutCgroup(ctx context.Context, err error) error {
	if err == nil || s.opts.Config.Runtime.SandboxCgroupOnly {
		return err
	}
	log.G(ctx).WithError(err).Warn("the pod is not accounted to its cgroup on the host")
	return nil
}

// accountVM moves the machine and the share's daemon to where they are
// charged, before the machine's first instruction.
func (s *Sandbox) accountVM(ctx context.Context) error {
	if s.cgroup == nil {
		return nil
	}
	if err := s.cgroup.await(ctx); err != nil {
		return err
	}
	err := s.cgroup.enterErr
	if daemon := s.files.DaemonPID(); err == nil && daemon != 0 {
		// It was started by a process that was perhaps not there yet.
		err = s.cgroup.Add(daemon)
	}
	if err == nil {
		err = s.chargeVM(ctx, s.size.MemoryMiB)
	}
	return s.orWithoutCgroup(ctx, err)
}

const (
	// vmOverheadMiB is room for what the monitor's process needs beside the
	// guest's memory.
	vmOverheadMiB = 256
	// tcgBufferMiB is room for the guest's code as TCG translates it (QEMU
	// 7.2's tcg/region.c, DEFAULT_CODE_GEN_BUFFER_SIZE).
	tcgBufferMiB = 1024
)

// chargeVM moves the machine, whose guest has, or is about to have, that much
// memory, to where it is charged. It is to be called again when vCPUs have
// been added, and before memory is.
func (s *Sandbox) chargeVM(ctx context.Context, guestMiB uint64) error {
	vm := hostcgroup.VM{PID: s.vm.PID(), Memory: (guestMiB + vmOverheadMiB) << 20}
	if s.platform.Accel == hypervisor.AccelTCG {
		vm.Memory += tcgBufferMiB << 20
	}
	if threader, ok := s.vm.(hypervisor.VCPUThreader); ok {
		var err error
		if vm.VCPUs, _, err = threader.VCPUThreads(ctx); err != nil {
			return err
		}
	}
	short, err := s.cgroup.AddVM(vm)
	if err != nil {
		return err
	}
	if short > 0 {
		log.G(ctx).WithFields(log.Fields{"cgroup": s.cgroup.Path(), "limit": short, "vm": vm.Memory}).
			Info("the pod's memory limit leaves no room for the virtual machine, which is not accounted to the pod")
	}
	return nil
}

// placePod gives the pod's cgroup what the containers have together of the
// host's CPUs, and the vCPUs theirs, and the machine its OOM score. It needs
// the token.
func (s *Sandbox) placePod(ctx context.Context) error {
	var own resource.Place
	var others []resource.Place
	for _, c := range s.living() {
		if c.ID == s.ID {
			own = c.allowed.place
			if c.isPause() {
				own = own.OfPause()
			}
		} else {
			others = append(others, c.allowed.place)
		}
	}
	s.scoreOOM(ctx)
	place := resource.Together(own, others...)
	if err := s.placeCgroup(ctx, place); err != nil {
		return err
	}
	s.pin(ctx, place.CPUs)
	return nil
}

// placeCgroup makes an error a warning, but for a pod that must be in its own
// cgroup: all its containers run, if not where they should.
func (s *Sandbox) placeCgroup(ctx context.Context, place resource.Place) error {
	if s.cgroup == nil || s.sizing.placed == place.String() {
		return nil
	}
	s.sizing.placed = ""
	if err := s.cgroup.SetPlace(place); err != nil {
		if s.opts.Config.Runtime.SandboxCgroupOnly {
			return fmt.Errorf("give the pod's cgroup %v: %w", place, err)
		}
		log.G(ctx).WithError(err).Warnf("the pod's cgroup on the host has not all of what its containers are to have: %v", place)
	}
	s.sizing.placed = place.String()
	return nil
}

// closeCgroup takes this process out of the pod's cgroups and removes them.
func (s *Sandbox) closeCgroup(ctx context.Context) error {
	if s.cgroup == nil {
		return nil
	}
	if err := s.cgroup.await(ctx); err != nil {
		return err
	}
	return errors.Join(s.cgroup.Release(), s.cgroup.Remove(ctx))
}
