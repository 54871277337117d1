package sizing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

// shrinkWait bounds one attempt to shrink the machine, because an Admit waits
// for it. What the guest has not given back by then stays until the next
// attempt, except vCPUs, which it may release at any time (cpusLeave).
const shrinkWait = 5 * time.Second

// makeRoom grows the machine for its containers, unless its size is static, and
// then updates their common limit and the pod's place on the host. The caller holds
// resizes.
func (p *Pod) makeRoom(ctx context.Context) error {
	if !p.static() {
		if err := p.grow(ctx); err != nil {
			return err
		}
	}
	if err := p.limitAdmitted(ctx); err != nil {
		return err
	}
	return p.placePod(ctx)
}

// wanted is how large the machine should be for its containers.
func (p *Pod) wanted() resource.Size {
	var needs []resource.Need
	for _, c := range p.living() {
		needs = append(needs, c.need)
	}
	want := p.machine.Size(append(resource.Once(needs), p.hugepages.need)...)
	if most := p.reachableMiB(); want.MemoryMiB > most {
		want.Notes = append(want.Notes, fmt.Sprintf("%d MiB of memory are needed and there can be %d: the guest takes memory in blocks of %d MiB",
			want.MemoryMiB, most, p.blockMiB(p.initial.MemoryMiB)))
		want.MemoryMiB = most
	}
	return want
}

// blockMiB returns the unit in which the guest of a machine that starts with bootMiB takes
// memory.
func (p *Pod) blockMiB(bootMiB uint64) uint64 {
	if p.opts.Config.Hypervisor.VirtioMem {
		return resource.BlockMiB
	}
	return max(hypervisor.MemoryBlockMiB(bootMiB), p.hugePageMiB)
}

// reachableMiB returns the largest size that the machine can grow to in whole blocks.
func (p *Pod) reachableMiB() uint64 {
	room := p.machine.MaxMemoryMiB - min(p.machine.MaxMemoryMiB, p.initial.MemoryMiB)
	return p.initial.MemoryMiB + room - room%p.blockMiB(p.initial.MemoryMiB)
}

// grow makes the machine as large as its containers need, if it is smaller.
func (p *Pod) grow(ctx context.Context) error {
	want := p.wanted()
	warnOf(ctx, want)
	hadCPUs, hadMiB := p.vcpus, p.memoryMiB
	if want.VCPUs <= hadCPUs && want.MemoryMiB <= hadMiB && !p.unused && !p.cpusLeave {
		return p.chargeRest(ctx)
	}
	p.unused = true
	want.VCPUs, want.MemoryMiB = max(want.VCPUs, hadCPUs), max(want.MemoryMiB, hadMiB)
	ctx, stop := p.opts.WhileAlive(ctx)
	defer stop()
	start := time.Now()
	err := p.growInSteps(ctx, want.MemoryMiB)
	if err == nil {
		err = p.growCPUs(ctx, want.VCPUs)
	}
	if err == nil {
		err = p.chargeRest(ctx)
	}
	if err == nil {
		err = p.useAll(ctx, want)
	}
	if err != nil {
		return fmt.Errorf("grow the machine from %d vCPUs and %d MiB to %d and %d: %w", hadCPUs, hadMiB, want.VCPUs, want.MemoryMiB, err)
	}
	p.unused, p.cpusLeave = false, false
	log.G(ctx).WithFields(log.Fields{
		"vcpus": p.vcpus, "memory_mib": p.memoryMiB, "had_vcpus": hadCPUs, "had_memory_mib": hadMiB,
		"t_grow": milliseconds(time.Since(start)),
	}).Info("machine grown")
	return nil
}

// maxGrowth is how many times its memory a machine gets at once. The guest's kernel
// describes each page of 4 KiB by 64 bytes: those of a module all at once, in memory
// that it already has. Of sixteen times as much they take a quarter.
const maxGrowth = 16

// growInSteps adds memory, and more only when the guest uses what it has got. With
// virtio-mem the guest takes it in small parts anyway.
func (p *Pod) growInSteps(ctx context.Context, want uint64) error {
	for !p.opts.Config.Hypervisor.VirtioMem && want > (1+maxGrowth)*p.memoryMiB {
		next := resource.Size{VCPUs: p.vcpus, MemoryMiB: (1 + maxGrowth) * p.memoryMiB}
		if err := p.growMemory(ctx, next.MemoryMiB); err != nil {
			return err
		}
		if err := p.chargeRest(ctx); err != nil {
			return err
		}
		if err := p.useAll(ctx, next); err != nil {
			return err
		}
	}
	return p.growMemory(ctx, want)
}

// growMemory may add more than wanted: chargeRest must follow, before the guest uses
// it.
func (p *Pod) growMemory(ctx context.Context, want uint64) error {
	if want <= p.memoryMiB {
		return nil
	}
	if err := p.checkHugepages(want); err != nil {
		return err
	}
	if p.cgroup != nil {
		if err := p.orWithoutCgroup(ctx, p.chargeVM(ctx, want)); err != nil {
			return err
		}
	}
	loaded := make(chan struct{})
	close(loaded)
	asking, stop := context.WithCancel(ctx)
	defer stop()
	if p.opts.Config.Hypervisor.VirtioMem {
		// The guest accepts the memory once it has the driver, which the agent
		// loads when it looks for memory and finds the device.
		loaded = make(chan struct{})
		go func() {
			defer close(loaded)
			if _, err := p.guest.SetResources(asking, 0, want); err != nil {
				log.G(ctx).WithError(err).Debug("the guest has not added the memory yet")
			}
		}()
	}
	// More than is needed no more than doubles the memory: the pod's bound has to cover it.
	most := min(p.growableMiB(ctx, want), max(want, 2*p.memoryMiB))
	mayHave := max(want+p.blockMiB(p.initial.MemoryMiB), most)
	if err := p.boundAllocated(ctx, mayHave); err != nil {
		return err
	}
	now, err := p.vm.SetMemoryMiB(ctx, want, most)
	p.memoryMiB = reached(p.memoryMiB, now, mayHave)
	if err == nil && now < want {
		err = fmt.Errorf("there are %d MiB of memory: %w", now, errdefs.ErrResourceExhausted)
	}
	if err != nil {
		stop() // the agent waits for memory that will not come
	}
	<-loaded
	return err
}

// growCPUs also plugs again what the guest has released after its time.
func (p *Pod) growCPUs(ctx context.Context, want uint32) error {
	if want <= p.vcpus && !p.cpusLeave {
		return nil
	}
	now, err := p.vm.SetVCPUs(ctx, want)
	p.vcpus = reached(p.vcpus, now, want)
	if err == nil && now < want {
		err = fmt.Errorf("there are %d vCPUs: %w", now, errdefs.ErrResourceExhausted)
	}
	if err == nil && p.cgroup != nil {
		err = p.orWithoutCgroup(ctx, p.chargeVM(ctx, p.memoryMiB))
	}
	return err
}

// useAll has the guest bring all CPUs and memory online.
func (p *Pod) useAll(ctx context.Context, want resource.Size) error {
	used, err := p.guest.SetResources(ctx, want.VCPUs, want.MemoryMiB)
	if err != nil {
		return err
	}
	if used.GetCpus() < want.VCPUs || used.GetMemoryMib() < want.MemoryMiB {
		return fmt.Errorf("the guest uses %d CPUs and %d MiB of memory: %w", used.GetCpus(), used.GetMemoryMib(), errdefs.ErrResourceExhausted)
	}
	return nil
}

// follow shrinks the machine as far as its containers allow, unless its size is
// static, and then reduces the pod's place on the host to what its containers
// use, within the limits that the host has for it by now. That has time until the
// machine runs: the guest of one that is paused gives nothing back. followed is not set
// if the pod may not have all of the host's limits.
func (p *Pod) follow(ctx context.Context) (followed bool, err error) {
	leave, err := p.opts.EnterAwake(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	if err := p.hold(ctx); err != nil {
		return false, err
	}
	defer p.letGo()
	if p.opts.Ending() {
		return false, nil
	}
	if !p.static() {
		err = p.shrink(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, shrinkWait)
	defer cancel()
	followed, limited := p.followLimits(ctx)
	return followed, errors.Join(err, limited, p.placePod(ctx))
}

// followLimits has the pod's machine and its guest follow the host's limits.
func (p *Pod) followLimits(ctx context.Context) (followed bool, err error) {
	host, err := p.above.Limits()
	if err != nil {
		return false, err
	}
	charged, limited := p.followLimit(ctx, host), p.limitTogether(ctx, host)
	return charged == nil && limited == nil, errors.Join(p.orWithoutCgroup(ctx, charged), limited)
}

// shrink makes the machine as small as its containers and the guest allow.
func (p *Pod) shrink(ctx context.Context) error {
	want, hadCPUs, hadMiB := p.wanted(), p.vcpus, p.memoryMiB
	if want.VCPUs >= hadCPUs && want.MemoryMiB >= hadMiB {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, shrinkWait)
	defer cancel()
	ctx, stop := p.opts.WhileAlive(ctx)
	defer stop()
	start := time.Now()
	err := errors.Join(p.shrinkCPUs(ctx, want.VCPUs), p.shrinkMemory(ctx, want.MemoryMiB))
	log.G(ctx).WithFields(log.Fields{
		"vcpus": p.vcpus, "memory_mib": p.memoryMiB, "had_vcpus": hadCPUs, "had_memory_mib": hadMiB,
		"wanted_vcpus": min(want.VCPUs, hadCPUs), "wanted_memory_mib": min(want.MemoryMiB, hadMiB),
		"t_shrink": milliseconds(time.Since(start)),
	}).Info(map[bool]string{true: "machine shrunk", false: "machine cannot shrink that far"}[p.fits(want)])
	return err
}

// fits reports whether the machine is no larger than wanted.
func (p *Pod) fits(want resource.Size) bool {
	return p.vcpus <= want.VCPUs && p.memoryMiB <= want.MemoryMiB
}

func (p *Pod) shrinkCPUs(ctx context.Context, want uint32) error {
	if want >= p.vcpus {
		return nil
	}
	now, err := p.vm.SetVCPUs(ctx, want)
	p.vcpus = reached(p.vcpus, now, want)
	p.cpusLeave = p.vcpus > want
	return err
}

// shrinkMemory removes virtio-mem memory; DIMMs stay (hypervisor.MemoryDIMM).
func (p *Pod) shrinkMemory(ctx context.Context, want uint64) error {
	if want >= p.memoryMiB || !p.opts.Config.Hypervisor.VirtioMem {
		return nil
	}
	now, err := p.vm.SetMemoryMiB(ctx, want, want)
	p.memoryMiB = reached(p.memoryMiB, now, want)
	return err
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(100*time.Microsecond)) / float64(time.Millisecond)
}
