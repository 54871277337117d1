package sizing

import (
	"cmp"
	"context"
	"fmt"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

// choose sets the size the machine starts with, and how far it can grow.
func (p *Pod) choose(ctx context.Context) error {
	machine, err := p.machineLimits()
	if err != nil {
		return err
	}
	var needs []resource.Need
	if p.static() {
		pod, err := resource.OfAnnotations(p.opts.Hints.Annotations)
		if err != nil {
			return err
		}
		own, err := resource.OfContainer(p.opts.Hints.Limits)
		if err != nil {
			return err
		}
		needs = append(needs, pod, own)
	}
	if p.hugePageMiB, err = hugePageOf(p.opts.Config.Hypervisor, procMeminfo); err != nil {
		return err
	}
	machine.MemoryMiB = p.fit(ctx, machine.MemoryMiB)
	p.initial = machine.Size(needs...)
	p.initial.MemoryMiB = wholePages(p.initial.MemoryMiB, p.hugePageMiB)
	warnOf(ctx, p.initial)
	p.machine = machine
	p.vcpus, p.memoryMiB = p.initial.VCPUs, p.initial.MemoryMiB
	return nil
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
func (p *Pod) machineLimits() (resource.Machine, error) {
	h := p.opts.Config.Hypervisor
	m := resource.Machine{
		VCPUs: cmp.Or(h.DefaultVCPUs, float64(h.VCPUs)), MaxVCPUs: h.MaxVCPUs,
		MemoryMiB: h.MemoryMiB, MaxMemoryMiB: h.MaxMemoryMiB,
	}
	if m.MaxMemoryMiB == 0 {
		var host unix.Sysinfo_t
		if err := unix.Sysinfo(&host); err != nil {
			return m, fmt.Errorf("ask for the host's memory: %w", err)
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
	spec.MaxVCPUs, spec.MaxMemoryMiB = h.MaxVCPUs, p.machine.MaxMemoryMiB
	spec.MemoryModel, spec.MemorySlots = hypervisor.MemoryDIMM, h.MemorySlots
	if h.VirtioMem {
		spec.MemoryModel = hypervisor.MemoryVirtio
	}
}

// Initial is the size that the machine starts with.
func (p *Pod) Initial() resource.Size { return p.initial }
