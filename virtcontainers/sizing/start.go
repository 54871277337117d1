package sizing

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

// Start is the size with which a machine starts, and how far it could grow.
type Start struct {
	config *config.Config
	// initial is the size at the start, most how far it could grow, and hugePageMiB the
	// size of the huge pages that its memory is made of; 0 is none.
	initial     resource.Size
	most        Most
	hugePageMiB uint64
}

// NewStart returns the size of a machine without a pod: the configuration's. It fails
// when the host cannot provide the memory backing.
func NewStart(ctx context.Context, cfg *config.Config) (*Start, error) {
	machine, err := machineLimits(cfg.Hypervisor)
	if err != nil {
		return nil, err
	}
	s := &Start{config: cfg, most: Most{VCPUs: machine.MaxVCPUs, MemoryMiB: machine.MaxMemoryMiB}}
	if s.hugePageMiB, err = hugePageOf(cfg.Hypervisor, procMeminfo); err != nil {
		return nil, err
	}
	s.begin(ctx, machine.Size())
	return s, nil
}

// begin sets the size at the start, in whole pages.
func (s *Start) begin(ctx context.Context, size resource.Size) {
	size.MemoryMiB = wholePages(size.MemoryMiB, s.hugePageMiB)
	warnOf(ctx, size)
	s.initial = size
}

// Set writes the size into the machine's spec.
func (s *Start) Set(spec *hypervisor.Spec) {
	spec.Memory.HugePageMiB = s.hugePageMiB
	spec.VCPUs, spec.MaxVCPUs, spec.MemoryMiB = s.initial.VCPUs, s.initial.VCPUs, s.initial.MemoryMiB
	if s.config.Runtime.StaticSizing {
		return
	}
	h := s.config.Hypervisor
	spec.MaxVCPUs, spec.MaxMemoryMiB = s.most.VCPUs, s.most.MemoryMiB
	spec.MemoryModel, spec.MemorySlots = hypervisor.MemoryDIMM, h.MemorySlots
	if h.VirtioMem {
		spec.MemoryModel = hypervisor.MemoryVirtio
	}
}

// ExplainLaunch adds the configuration key to an error that may be due to huge
// pages.
func (s *Start) ExplainLaunch(err error) error {
	if s.hugePageMiB != 0 && errdefs.IsResourceExhausted(err) {
		return fmt.Errorf("hypervisor.qemu.enable_hugepages: %w", err)
	}
	return err
}

// Initial is the size that the machine starts with.
func (s *Start) Initial() resource.Size { return s.initial }
