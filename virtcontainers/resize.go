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

// chooseSize sets how large the machine is at its start.
func (s *Sandbox) chooseSize(ctx context.Context) error {
	machine, err := s.machineLimits()
	if err != nil {
		return err
	}
	var needs []resource.Need
	if s.opts.Config.Runtime.StaticSizing {
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
	s.size = machine.Size(needs...)
	for _, note := range s.size.Notes {
		log.G(ctx).Warnf("the machine is smaller than the pod's limits: %s", note)
	}
	return nil
}

// machineLimits is the size that the configuration gives a machine, and how
// far the configuration and the host let it grow.
func (s *Sandbox) machineLimits() (resource.Machine, error) {
	h := s.opts.Config.Hypervisor
	var host unix.Sysinfo_t
	if err := unix.Sysinfo(&host); err != nil {
		return resource.Machine{}, fmt.Errorf("ask for the host's memory: %w", err)
	}
	return resource.Machine{
		VCPUs: cmp.Or(h.DefaultVCPUs, float64(h.VCPUs)), MaxVCPUs: h.MaxVCPUs,
		MemoryMiB: h.MemoryMiB, MaxMemoryMiB: host.Totalram * uint64(host.Unit) >> 20,
	}, nil
}

// setSize puts the machine's size at its start into its spec. Each vCPU that
// there can be costs the guest at boot.
func (s *Sandbox) setSize(spec *hypervisor.Spec) {
	spec.VCPUs, spec.MaxVCPUs, spec.MemoryMiB = s.size.VCPUs, s.opts.Config.Hypervisor.MaxVCPUs, s.size.MemoryMiB
	if s.opts.Config.Runtime.StaticSizing {
		spec.MaxVCPUs = s.size.VCPUs
	}
}
