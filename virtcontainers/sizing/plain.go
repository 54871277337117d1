package sizing

import (
	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

// StartPlain has the machine start with the size of machines without the pod's
// annotations, which templates and spares have: it grows to the pod's own size
// before the first container is created. It reports whether that is possible;
// otherwise nothing changes. It is called before the boot, and undo is StartPlain's
// opposite.
func (p *Pod) StartPlain() (undo func(), ok bool) {
	own := p.initial
	plain, ok := p.plainSize()
	if !ok || p.static() || p.hugePageMiB > 0 || !p.reaches(plain, own) {
		return nil, false
	}
	p.startAs(plain)
	return func() { p.startAs(own) }, true
}

// plainSize is the size without annotations; there is none if the pod has none.
func (p *Pod) plainSize() (resource.Size, bool) {
	c := p.opts.Config.Plain
	if c == nil {
		return resource.Size{}, false
	}
	machine, err := machineLimits(c.Hypervisor)
	return machine.Size(), err == nil
}

// reaches reports whether a machine becomes exactly as large as one that starts so.
func (p *Pod) reaches(from, to resource.Size) bool {
	if from.VCPUs > to.VCPUs || from.MemoryMiB > to.MemoryMiB {
		return false
	}
	h, more := p.opts.Config.Hypervisor, to.MemoryMiB-from.MemoryMiB
	if more == 0 {
		return from.VCPUs < to.VCPUs
	}
	return more%p.blockMiB(from.MemoryMiB) == 0 && to.MemoryMiB <= p.machine.MaxMemoryMiB && (h.VirtioMem || h.MemorySlots > 0)
}
