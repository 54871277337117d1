package sizing

import (
	"cmp"
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

// choose sets the size the machine starts with, and how far it can grow.
func (p *Pod) choose(ctx context.Context) error {
	machine, err := machineLimits(p.opts.Config.Hypervisor)
	if err != nil {
		return err
	}
	p.most = Most{VCPUs: machine.MaxVCPUs, MemoryMiB: machine.MaxMemoryMiB}
	if saved := p.opts.Most; saved != nil {
		p.most = *saved
		machine.MaxVCPUs, machine.MaxMemoryMiB = min(machine.MaxVCPUs, saved.VCPUs), min(machine.MaxMemoryMiB, saved.MemoryMiB)
	}
	var needs []resource.Need
	if p.whole, err = resource.OfAnnotations(p.opts.Hints.Annotations); err != nil && p.static() {
		return err
	}
	if p.static() {
		own, err := resource.OfContainer(p.opts.Hints.Limits)
		if err != nil {
			return err
		}
		needs = append(needs, p.whole, own)
	}
	if p.hugePageMiB, err = hugePageOf(p.opts.Config.Hypervisor, procMeminfo); err != nil {
		return err
	}
	p.measure(ctx)
	machine.MemoryMiB = p.fit(ctx, machine.MemoryMiB)
	own := machine.Size(needs...)
	own.MemoryMiB = wholePages(own.MemoryMiB, p.hugePageMiB)
	warnOf(ctx, own)
	p.machine = machine
	p.startAs(own)
	return nil
}

// startAs sets the size that the machine starts with.
func (p *Pod) startAs(size resource.Size) {
	p.initial = size
	p.vcpus, p.memoryMiB = size.VCPUs, size.MemoryMiB
}

// warnOf logs which limits the machine cannot provide.
func warnOf(ctx context.Context, size resource.Size) {
	for _, note := range size.Notes {
		log.G(ctx).Warnf("the machine is smaller than its containers' limits: %s", note)
	}
}

// static reports whether the machine keeps the size that it starts with.
func (p *Pod) static() bool { return p.opts.Config.Runtime.StaticSizing }

// machineLimits is the size that the configuration gives a machine, and how far
// the configuration and the host's memory let it grow.
func machineLimits(h config.Hypervisor) (resource.Machine, error) {
	m := resource.Machine{
		VCPUs: cmp.Or(h.DefaultVCPUs, float64(h.VCPUs)), MaxVCPUs: h.MaxVCPUs,
		MemoryMiB: h.MemoryMiB, MaxMemoryMiB: h.MaxMemoryMiB,
	}
	if m.MaxMemoryMiB == 0 {
		var host unix.Sysinfo_t
		if err := unix.Sysinfo(&host); err != nil {
			return m, fmt.Errorf("read the host's memory size: %w", err)
		}
		m.MaxMemoryMiB = host.Totalram * uint64(host.Unit) >> 20
	}
	return m, nil
}

// Set writes the size the machine starts with, and how far it can grow, into its
// spec.
func (p *Pod) Set(spec *hypervisor.Spec) {
	spec.Memory.HugePageMiB = p.hugePageMiB
	spec.VCPUs, spec.MaxVCPUs, spec.MemoryMiB = p.initial.VCPUs, p.initial.VCPUs, p.initial.MemoryMiB
	if p.static() {
		return
	}
	h := p.opts.Config.Hypervisor
	spec.MaxVCPUs, spec.MaxMemoryMiB = p.most.VCPUs, p.most.MemoryMiB
	spec.MemoryModel, spec.MemorySlots = hypervisor.MemoryDIMM, h.MemorySlots
	if h.VirtioMem {
		spec.MemoryModel = hypervisor.MemoryVirtio
	}
}

// CheckModules returns an error for a saved machine whose memory modules, of those sizes,
// are more than this host and its configuration allow. Otherwise the pod is charged for
// them from the start: they are filled when the machine's state is loaded, before the
// first Admit.
func (p *Pod) CheckModules(sizesMiB []uint64) error {
	most, has := p.machine.MaxMemoryMiB, p.initial.MemoryMiB
	for _, size := range sizesMiB {
		if has > most || size > most-has {
			return fmt.Errorf("the saved machine has %d MiB and memory modules of %d MiB, this host and its configuration allow %d MiB (default_maxmemory): %w",
				p.initial.MemoryMiB, sizesMiB, most, errdefs.ErrFailedPrecondition)
		}
		has += size
	}
	p.memoryMiB, p.unused = has, has > p.initial.MemoryMiB
	return nil
}

// Initial is the size that the machine starts with.
func (p *Pod) Initial() resource.Size { return p.initial }
