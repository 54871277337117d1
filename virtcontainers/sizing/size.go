package sizing

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"

	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

// choose sets the size the machine starts with, and how far it can grow.
func (p *Pod) choose(ctx context.Context) error {
	machine, err := machineLimits(p.opts.Config.Hypervisor)
	if err != nil {
		return err
	}
	p.Start = Start{config: p.opts.Config, most: Most{VCPUs: machine.MaxVCPUs, MemoryMiB: machine.MaxMemoryMiB}}
	if saved := p.opts.Most; saved != nil {
		p.most = p.vmmMost(*saved)
		machine.MaxVCPUs, machine.MaxMemoryMiB = min(machine.MaxVCPUs, saved.VCPUs), min(machine.MaxMemoryMiB, saved.MemoryMiB)
	}
	var needs []resource.Need
	if p.whole, err = p.opts.Hints.whole(); err != nil && p.static() {
		return err
	}
	if p.static() {
		own, err := p.opts.Hints.own()
		if err != nil {
			return err
		}
		needs = append(needs, p.whole, own)
	}
	if p.hugePageMiB, err = hugePageOf(p.opts.Config.Hypervisor, procMeminfo); err != nil {
		return err
	}
	p.openAbove(ctx)
	p.measure(ctx)
	machine.MemoryMiB = p.fit(ctx, machine.MemoryMiB)
	p.begin(ctx, machine.Size(needs...))
	p.machine = machine
	p.startAs(p.initial)
	p.nicQueues = p.initial.VCPUs
	return nil
}

// whole returns what all of the pod's containers together may use, as far as the engine
// says. It fails with errdefs.ErrInvalidArgument.
func (h Hints) whole() (resource.Need, error) {
	if h.Pod != nil {
		return resource.OfPod(h.Pod), nil
	}
	return resource.OfAnnotations(h.Annotations)
}

// own returns the need of the sandbox's own container: a pod of CRI has only a pause
// container there. It fails with errdefs.ErrInvalidArgument.
func (h Hints) own() (resource.Need, error) {
	if h.cri() {
		return resource.Need{}, nil
	}
	return resource.OfContainer(h.Limits)
}

// need returns the need of a container with those limits. It fails with
// errdefs.ErrInvalidArgument.
func (h Hints) need(limits *specs.LinuxResources) (resource.Need, error) {
	if h.cri() {
		return resource.OfKubelet(limits)
	}
	return resource.OfContainer(limits)
}

// cri reports whether the pod is one of CRI, the kubelet's.
func (h Hints) cri() bool { return h.Pod != nil || resource.HasPod(h.Annotations) }

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
		m.MaxMemoryMiB = roundMiB(host.Totalram * uint64(host.Unit) >> 20)
	}
	return m, nil
}

// roundMiB rounds the host's memory down, by less than a 64th. It is part of the key of
// templates and spares, which a host whose memory changes by some MiB (a balloon, reserved
// pages) would make anew each time.
func roundMiB(total uint64) uint64 {
	if total < 64 {
		return total
	}
	step := uint64(1) << (bits.Len64(total/64) - 1)
	return total / step * step
}
