package sizing

import (
	"context"

	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

const (
	// leastMiB is the least memory with which a guest boots, not counting
	// containers': the configuration allows no smaller default_memory.
	leastMiB = 256
	// shimMiB is room for the shim, its helpers and loggers if they are in the
	// pod's cgroup too.
	shimMiB = 128
)

// fit returns how many MiB the machine gets for itself, at most own, the
// configuration's value: so that the machine, grown for all that its containers
// may use, stays within the host's memory limit for the pod. The kubelet's
// limit is the sum of what the containers may use and the runtime class's
// overhead. The guest then runs out of memory before the pod's cgroup does, and
// the pod costs no more than that. If fewer than leastMiB are left, or the
// containers' limits are not known, it returns own, and the machine may not fit
// (chargeVM).
func (p *Pod) fit(ctx context.Context, own uint64) uint64 {
	ready := p.opts.Config.Factory // a template or a spare has the configured size
	if !p.above.Any() || p.hugePageMiB > 0 || ready.Template || ready.VMs > 0 {
		return own
	}
	containers := resource.Machine{MaxMemoryMiB: 1 << 40}.Size(p.whole).MemoryMiB
	if containers == 0 {
		return own
	}
	limits, err := p.above.Limits()
	if err != nil {
		log.G(ctx).WithError(err).Warn("the machine's size does not follow the pod's memory limit on the host")
		return own
	}
	room := within(limits.Memory>>20, p.besideMiB()+containers)
	if room < leastMiB || room >= own {
		return own
	}
	log.G(ctx).WithFields(log.Fields{"default_memory": own, "memory_mib": room, "limit": limits.Memory}).
		Info("the machine starts smaller, to stay within the pod's memory limit")
	return room
}

// besideMiB returns the room that the pod's cgroup needs beside the guest's
// memory.
func (p *Pod) besideMiB() uint64 {
	if p.opts.Config.Runtime.SandboxCgroupOnly {
		return p.overheadMiB() + shimMiB
	}
	return p.overheadMiB()
}

// within returns what is left of a limit, in whole blocks.
func within(limitMiB, used uint64) uint64 {
	if limitMiB < used {
		return 0
	}
	return (limitMiB - used) / resource.BlockMiB * resource.BlockMiB
}
