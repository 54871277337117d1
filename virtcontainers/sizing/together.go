package sizing

import (
	"context"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// together is the limit of what all containers of a pod may use. The kubelet's is that
// of the pod's cgroup on the host, beside which it has room for the runtime class's
// overhead; the containers themselves are in the guest, so it has to be set there too.
// The holder of resizes may use it.
type together struct {
	// known is set if the engine has said what the containers may use, and the host
	// enforces a limit.
	known bool
	// seen is what limitsChanged has found on the host.
	seen hostcgroup.Limits
	// said and beside are the parts of the host's limit at first that are the
	// containers' and that are not, in bytes.
	said, beside uint64
	// set is the limit that the guest has, in bytes; 0 is none.
	set uint64
	// threads is the guest's limit of threads; 0 is none.
	threads uint64
	// unsure is set while the guest may have another limit.
	unsure bool
}

// openAbove finds where the host's limits for the pod are. On a host without them the pod
// has none.
func (p *Pod) openAbove(ctx context.Context) {
	var err error
	if p.above, err = hostcgroup.OpenAbove(p.opts.CgroupRoot, p.opts.CgroupsPath); err != nil {
		log.G(ctx).WithError(err).Warn("the pod does not follow the limits of its cgroup on the host")
	}
}

// measure finds out which part of the host's limit is the containers'. CRI's
// annotations have the pod's limits without its overhead.
func (p *Pod) measure(ctx context.Context) {
	p.together.unsure = p.opts.Most != nil // a saved guest has that of another pod
	limits, err := p.above.Limits()
	if err != nil {
		log.G(ctx).WithError(err).Warn("the pod's own memory limit is not set in the guest")
		return
	}
	p.together.seen = limits
	said, limit := p.whole.MemoryBytes(), limits.ParentMemory
	if said == 0 || limit == hostcgroup.NoLimit {
		return
	}
	p.together.known = true
	p.together.said = min(limit, said)
	p.together.beside = limit - p.together.said
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
// host does. The limits on the host change with the pod: they are read anew.
func (p *Pod) limitTogether(ctx context.Context) error {
	host, err := p.above.Limits()
	if err != nil {
		log.G(ctx).WithError(err).Warn("the pod's own limits in the guest do not follow the host's")
		return nil
	}
	t := &p.together
	limit, threads := t.memory(host.ParentMemory), threadsOf(host.ParentThreads)
	if limit == t.set && threads == t.threads && !t.unsure {
		return nil
	}
	ctx, stop := p.opts.WhileAlive(ctx)
	defer stop()
	t.unsure = true
	err = p.guest.LimitContainers(ctx, limit, threads)
	if errdefs.IsNotImplemented(err) && p.opts.Most != nil {
		// A guest that was saved by an earlier version has no such limit.
		if limit > 0 {
			log.G(ctx).WithField("limit", limit).Warn("the saved guest cannot limit its containers together")
		}
		err = nil
	}
	if err != nil {
		return err
	}
	t.set, t.threads, t.unsure = limit, threads, false
	return nil
}

// memory returns the guest's limit, in bytes, for a limit of the pod's parent on the
// host; 0 is none.
func (t *together) memory(host uint64) uint64 {
	switch {
	case !t.known || host == hostcgroup.NoLimit:
		return 0
	case host > t.beside:
		return host - t.beside
	}
	return t.set // nothing is left for containers: the host's limit holds
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

// limitsChanged reports whether the host's limits are others than at its last call, or
// could not be followed then. Kubernetes can change those of a pod alone, and no engine
// tells the runtime. It is for Watch's goroutine.
func (p *Pod) limitsChanged() bool {
	now, err := p.above.Limits()
	if err != nil {
		return false // at the pod's end, too
	}
	if now == p.together.seen && !p.behind {
		return false
	}
	p.together.seen = now
	return true
}
