package sizing

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
	"github.com/katabox/katabox/virtcontainers/sizing/resource"
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

// OpenCgroup moves this process to the cgroup that the engine made for it, if
// there is one, makes the pod's cgroups, if the engine named a place for them, and
// begins to move there what of this process is still elsewhere; Account waits for
// the move. record writes their directories to disk before they are made.
// CloseCgroup undoes it.
func (p *Pod) OpenCgroup(ctx context.Context, record func(dirs []string) error) error {
	if err := p.enterShimCgroup(); err != nil {
		return err
	}
	if p.opts.CgroupsPath == "" {
		return nil
	}
	err := p.orWithoutCgroup(ctx, p.makeCgroup(ctx, record))
	if err != nil {
		err = errors.Join(err, p.leaveShimCgroup())
	}
	return err
}

// enterShimCgroup fails when this process cannot be where the engine wants it:
// unlike the pod's cgroups, this one was asked for by name.
func (p *Pod) enterShimCgroup() error {
	if p.opts.ShimCgroup == "" {
		return nil
	}
	found, err := hostcgroup.OpenExisting(p.opts.CgroupRoot, p.opts.ShimCgroup)
	if err != nil {
		return fmt.Errorf("move the shim to %s (option ShimCgroup): %w", p.opts.ShimCgroup, err)
	}
	if err := found.Enter(); err != nil {
		return fmt.Errorf("move the shim to %s (option ShimCgroup): %w", p.opts.ShimCgroup, errors.Join(err, found.Leave()))
	}
	p.shimCgroup = found
	return nil
}

func (p *Pod) leaveShimCgroup() error {
	if p.shimCgroup == nil {
		return nil
	}
	return p.shimCgroup.Leave()
}

func (p *Pod) makeCgroup(ctx context.Context, record func(dirs []string) error) error {
	made, err := hostcgroup.New(hostcgroup.Options{
		Root: p.opts.CgroupRoot, Path: p.opts.CgroupsPath, Name: p.opts.CgroupName,
		Only: p.opts.Config.Runtime.SandboxCgroupOnly, Shim: p.shimCgroup,
	})
	if err != nil {
		return err
	}
	if err := record(made.Dirs()); err != nil {
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
	p.cgroup = c
	return nil
}

// orWithoutCgroup makes an error of the cgroups a warning, but for a pod that
// must be in its own: engines, too, run without cgroups where there are none.
func (p *Pod) orWithoutCgroup(ctx context.Context, err error) error {
	if err == nil || p.opts.Config.Runtime.SandboxCgroupOnly {
		return err
	}
	log.G(ctx).WithError(err).Warn("the pod is not accounted to its cgroup on the host")
	return nil
}

// Account moves the machine and the share's daemon (its pid; 0 for none) into
// the pod's cgroups. It is called once, between the machine's launch and its
// first instruction, and before Connect. With v1 the guest's CPU time is not the
// pod's yet, but its overhead's, which has the default weight: on a busy host a
// guest would hardly boot with the least that there is (ChargeCPUs).
func (p *Pod) Account(ctx context.Context, vm hypervisor.VM, daemon int) error {
	p.vm = vm
	if p.cgroup == nil {
		return nil
	}
	if err := p.cgroup.await(ctx); err != nil {
		return err
	}
	err := p.cgroup.enterErr
	if err == nil && daemon != 0 {
		// It was started by a process that was perhaps not there yet.
		err = p.cgroup.Add(daemon)
	}
	if err == nil {
		err = p.chargeVM(ctx, p.initial.MemoryMiB)
	}
	p.unaccounted = err != nil
	return p.orWithoutCgroup(ctx, err)
}

// ChargeCPUs charges the pod for the guest's CPU time from now on, under the
// pod's weight. It is called once, when the guest has booted.
func (p *Pod) ChargeCPUs(ctx context.Context) error {
	p.booted = true
	if p.cgroup == nil || p.unaccounted {
		return nil
	}
	return p.orWithoutCgroup(ctx, p.chargeVM(ctx, p.initial.MemoryMiB))
}

const (
	// vmOverheadMiB is room for what any monitor's process needs beside the
	// guest's memory.
	vmOverheadMiB = 256
	// tcgMiB is room for all that TCG keeps where the configuration does not bound
	// the guest's translated code (QEMU 7.2's tcg/region.c,
	// DEFAULT_CODE_GEN_BUFFER_SIZE). Where it does, tcgTablesMiB is room for the
	// rest, each vCPU's translated addresses above all (accel/tcg/cputlb.c).
	tcgMiB, tcgTablesMiB = 1024, 128
	// helpersMiB is room for the shim, with what the kernel caches of the files
	// it serves, an external virtiofsd and loggers: a shim takes 30 MiB, and
	// keeps below manager.heapBytes.
	helpersMiB = 512
	// maxThreads is more than a shim, a QEMU with all its threads for disks and
	// those helpers have.
	maxThreads = 8192
)

// bound keeps what a pod costs beside its guest within what it can need: the VM
// may be there too, and the pages of the guest's that the shim is first to
// touch are. It is not lowered: with v1 that can fail.
func (p *Pod) bound(vm hostcgroup.VM) error {
	most := vm.Memory + helpersMiB<<20
	if most <= p.bounded {
		return nil
	}
	err := p.cgroup.SetBound(hostcgroup.Bound{Memory: most, Processes: maxThreads})
	if err == nil {
		p.bounded = most
	}
	return err
}

// overheadMiB is room for what the monitor's process needs beside the guest's
// memory.
func (p *Pod) overheadMiB() uint64 {
	code := p.opts.Config.Hypervisor.TranslationMiB
	switch {
	case p.opts.Accel != hypervisor.AccelTCG:
		return vmOverheadMiB
	case code == 0:
		return vmOverheadMiB + tcgMiB
	}
	return vmOverheadMiB + tcgTablesMiB + code
}

// chargeVM moves the machine, whose guest has, or is about to have, that much
// memory, to where it is charged. It is to be called again when vCPUs have
// been added, and before memory is.
func (p *Pod) chargeVM(ctx context.Context, guestMiB uint64) error {
	vm := hostcgroup.VM{PID: p.vm.PID(), Memory: (guestMiB + p.overheadMiB()) << 20}
	if p.booted {
		var err error
		if vm.VCPUs, _, err = p.vm.VCPUThreads(ctx); err != nil {
			return err
		}
	}
	if err := p.bound(vm); err != nil {
		return err
	}
	short, err := p.cgroup.AddVM(vm)
	if err != nil {
		return err
	}
	if short > 0 {
		log.G(ctx).WithFields(log.Fields{"cgroup": p.cgroup.Path(), "limit": short, "vm": vm.Memory}).
			Info("the pod's memory limit leaves no room for the virtual machine, which is not accounted to the pod")
	}
	return nil
}

// placePod gives the pod's cgroup what the containers have together of the
// host's CPUs, and the vCPUs theirs, and the machine its OOM score. The
// caller holds resizes.
func (p *Pod) placePod(ctx context.Context) error {
	var own resource.Place
	var others []resource.Place
	for _, c := range p.living() {
		if c.ID == p.opts.SandboxID {
			own = c.place
			if c.Pause {
				own = own.OfPause()
			}
		} else {
			others = append(others, c.place)
		}
	}
	p.scoreOOM(ctx)
	place := resource.Together(own, others...)
	if err := p.placeCgroup(ctx, place); err != nil {
		return err
	}
	p.pin(ctx, place.CPUs)
	return nil
}

// placeCgroup makes an error a warning, but for a pod that must be in its own
// cgroup: all its containers run, if not where they should.
func (p *Pod) placeCgroup(ctx context.Context, place resource.Place) error {
	if p.cgroup == nil || p.placed == place.String() {
		return nil
	}
	p.placed = ""
	if err := p.cgroup.SetPlace(place); err != nil {
		if p.opts.Config.Runtime.SandboxCgroupOnly {
			return fmt.Errorf("give the pod's cgroup %v: %w", place, err)
		}
		log.G(ctx).WithError(err).Warnf("the pod's cgroup on the host lacks some of what its containers are to have: %v", place)
	}
	p.placed = place.String()
	return nil
}

// CloseCgroup takes this process out of the pod's cgroups, and removes those that
// were made for the pod.
func (p *Pod) CloseCgroup(ctx context.Context) error {
	if p.cgroup == nil {
		return p.leaveShimCgroup()
	}
	if err := p.cgroup.await(ctx); err != nil {
		return err
	}
	return errors.Join(p.leaveShimCgroup(), p.cgroup.Release(), p.cgroup.Remove(ctx))
}
