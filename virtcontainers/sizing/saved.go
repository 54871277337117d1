package sizing

import (
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

// vmmMost returns how large the VMM lets a machine become that continues from one that
// could become that large. That may be more than this host has, because the guest was
// told so when it booted: the VMM bounds both numbers, and unused CPUs and addresses cost
// little, within the pod's bound. With virtio-mem the kernel makes tables for all that
// may be plugged, and the bound has room for them (tablesMiB). A machine with that
// cannot be saved, so the record, which may be forged, is not believed.
func (p *Pod) vmmMost(saved Most) Most {
	if p.opts.Config.Hypervisor.VirtioMem && !p.static() {
		return p.most
	}
	return saved
}

// MostMiB returns how much memory the machine may ever have, in MiB. That of one which
// continues from a saved one may be less than hypervisor.Spec.MaxMemoryMiB, which is
// from its record.
func (p *Pod) MostMiB() uint64 {
	if p.static() {
		return p.initial.MemoryMiB
	}
	return max(p.initial.MemoryMiB, p.machine.MaxMemoryMiB)
}

// Continue makes a saved machine's size, which it has from its start, the pod's. It
// returns an error if that is more than this host and its configuration allow. It is
// called once, before Account: memory modules are filled when the machine's state is
// loaded, before the first Admit.
func (p *Pod) Continue(saved hypervisor.Layout) error {
	if most := max(p.machine.MaxVCPUs, p.initial.VCPUs); saved.VCPUs > most {
		return fmt.Errorf("the saved machine has %d vCPUs, this host and its configuration allow %d (default_maxvcpus): %w",
			saved.VCPUs, most, errdefs.ErrFailedPrecondition)
	}
	most, has := p.machine.MaxMemoryMiB, p.initial.MemoryMiB
	for _, size := range saved.ModulesMiB {
		if has > most || size > most-has {
			return fmt.Errorf("the saved machine has %d MiB and memory modules of %d MiB, this host and its configuration allow %d MiB (default_maxmemory): %w",
				p.initial.MemoryMiB, saved.ModulesMiB, most, errdefs.ErrFailedPrecondition)
		}
		has += size
	}
	p.vcpus, p.memoryMiB, p.unused = max(saved.VCPUs, p.initial.VCPUs), has, has > p.initial.MemoryMiB
	return nil
}
