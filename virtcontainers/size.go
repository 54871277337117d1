package virtcontainers

import (
	"cmp"
	"context"
	"fmt"

	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/resource"
)

// SizeHints are what the engine says of a pod's size before its containers are
// there. Only a pod that is sized once, at its start, needs them.
type SizeHints struct {
	// Annotations are those of the sandbox's own container; CRI's tell what
	// all containers together may use.
	Annotations map[string]string
	// Limits are the sandbox's own container's, or nil.
	Limits *specs.LinuxResources
}

// chooseSize sets how large the machine is at its start, and how far it can
// grow.
func (s *Sandbox) chooseSize(ctx context.Context) error {
	machine, err := s.machineLimits()
	if err != nil {
		return err
	}
	var needs []resource.Need
	if s.static() {
		pod, err := resource.OfAnnotations(s.opts.Size.Annotations)
		if err != nil {
			return err
		}
		own, err := resource.OfContainer(s.opts.Size.Limits)
		if err != nil {
			return err
		}
		needs = append(needs, pod, own)
	}
	if s.sizing.hugePageMiB, err = hugePageOf(s.opts.Config.Hypervisor, procMeminfo); err != nil {
		return err
	}
	s.size = machine.Size(needs...)
	s.size.MemoryMiB = wholePages(s.size.MemoryMiB, s.sizing.hugePageMiB)
	warnOf(ctx, s.size)
	s.sizing.machine = machine
	s.sizing.vcpus, s.sizing.memoryMiB = s.size.VCPUs, s.size.MemoryMiB
	return nil
}

// warnOf says what containers' limits promise and the machine cannot give.
func warnOf(ctx context.Context, size resource.Size) {
	for _, note := range size.Notes {
		log.G(ctx).Warnf("the machine is smaller than its containers' limits: %s", note)
	}
}

// static reports whether the machine keeps the size that it starts with.
func (s *Sandbox) static() bool { return s.opts.Config.Runtime.StaticSizing }

// machineLimits is the size that the configuration gives a machine, and how
// far the configuration and the host let it grow.
func (s *Sandbox) machineLimits() (resource.Machine, error) {
	h := s.opts.Config.Hypervisor
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

// setSize puts the machine's size at its start, and how far it can grow, into
// its spec.
func (s *Sandbox) setSize(spec *hypervisor.Spec) {
	spec.VCPUs, spec.MaxVCPUs, spec.MemoryMiB = s.size.VCPUs, s.size.VCPUs, s.size.MemoryMiB
	if s.static() {
		return
	}
	h := s.opts.Config.Hypervisor
	spec.MaxVCPUs, spec.MaxMemoryMiB = h.MaxVCPUs, s.sizing.machine.MaxMemoryMiB
	spec.MemoryModel, spec.MemorySlots = hypervisor.MemoryDIMM, h.MemorySlots
	if h.VirtioMem {
		spec.MemoryModel = hypervisor.MemoryVirtio
	}
}
