package sizing

import (
	"context"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// together is which part of the host's memory limit for the pod is its containers'. The
// kubelet's is that of the pod's cgroup on the host, beside which it has room for the
// runtime class's overhead; the containers themselves are in the guest, so it has to be set
// there too. It does not change after New.
type together struct {
	// known is set if the engine has said what the containers may use, and the host
	// enforces a limit.
	known bool
	// said and beside are the parts of the host's limit at first that are the
	// containers' and that are not, in bytes.
	said, beside uint64
}

// guestLimits are the limits of all containers together in the guest.
type guestLimits struct {
	// memory is in bytes; threads counts them. 0 is none.
	memory, threads uint64
	// unsure is set while the guest may have others.
	unsure bool
}

// openAbove finds where the host's limits for the pod are. On a host without them the pod
// has none.
func (p *Pod) openAbove(ctx context.Context) {
	var err error
	if p.above, err = hostcgroup.OpenAbove(p.opts.CgroupRoot, p.opts.CgroupsPath, p.hugePageMiB); err != nil {
		log.G(ctx).WithError(err).Warn("the pod does not follow the limits of its cgroup on the host")
	}
}

// measure finds out which part of the host's limit is the containers'. CRI's
// annotations have the pod's limits without its overhead.
func (p *Pod) measure(ctx context.Context) {
	p.guestHas.unsure = p.opts.Most != nil // a saved guest has those of another pod
	limits, err := p.above.Limits()
	if err != nil {
		log.G(ctx).WithError(err).Warn("the pod's own memory limit is not set in the guest")
		return
	}
	p.first = limits
	said, limit := p.whole.MemoryBytes(), limits.ParentMemory
	if said == 0 || limit == hostcgroup.NoLimit {
		return
	}
	said = min(limit, said)
	p.together = together{known: true, said: said, beside: limit - said}
}

// MemoryBytes returns what the pod's containers may use together, as the engine has
// said at the pod's start; 0 is no limit.
func (p *Pod) MemoryBytes() uint64 {
	if !p.together.known {
		return 0
	}
	return p.together.said
}

// limitTogether has the guest limit the memory and the threads of all containers as the
// host does by now. The caller holds resizes.
func (p *Pod) limitTogether(ctx context.Context, host hostcgroup.Limits) error {
	has := &p.guestHas
	memory, threads := p.together.memory(host.ParentMemory, has.memory), threadsOf(host.ParentThreads)
	if memory == has.memory && threads == has.threads && !has.unsure {
		return nil
	}
	ctx, stop := p.opts.WhileAlive(ctx)
	defer stop()
	has.unsure = true
	err := p.guest.LimitContainers(ctx, memory, threads)
	if errdefs.IsNotImplemented(err) && p.opts.Most != nil {
		// A guest that was saved by an earlier version has no such limit.
		if memory > 0 {
			log.G(ctx).WithField("limit", memory).Warn("the saved guest cannot limit its containers together")
		}
		err = nil
	}
	if err != nil {
		return err
	}
	*has = guestLimits{memory: memory, threads: threads}
	return nil
}

// limitAdmitted is limitTogether for containers that were admitted or updated. It does not
// fail if the host's limits cannot be read: Watch follows them later.
func (p *Pod) limitAdmitted(ctx context.Context) error {
	host, err := p.above.Limits()
	if err != nil {
		log.G(ctx).WithError(err).Warn("the pod's own limits in the guest do not follow the host's")
		p.mayShrink()
		return nil
	}
	return p.limitTogether(ctx, host)
}

// memory returns the guest's limit, in bytes, for a limit of the pod's parent on the
// host, where the guest has one by now; 0 is none.
func (t together) memory(host, has uint64) uint64 {
	switch {
	case !t.known || host == hostcgroup.NoLimit:
		return 0
	case host > t.beside:
		return host - t.beside
	}
	return has // nothing is left for containers: the host's limit holds
}

// threadsOf returns the guest's limit of threads for that of the pod's parent (the
// kubelet's podPidsLimit); 0 is none. The containers' threads are in the guest, where
// the parent counts none of them.
func threadsOf(host uint64) uint64 {
	if host == hostcgroup.NoLimit {
		return 0
	}
	return host
}
