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
	// host is where the host's limit is, and seen what limitChanged has found there.
	host *hostcgroup.ParentLimit
	seen uint64
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

// noLimit is more memory than any host has: v1's largest limit is a little less than
// 1<<63.
const noLimit = 1 << 62

// measure finds out which part of the host's limit is the containers'. CRI's
// annotations have the pod's limits without its overhead.
func (p *Pod) measure(ctx context.Context) {
	p.together.unsure = p.opts.Most != nil // a saved guest has that of another pod
	said := p.whole.MemoryBytes()
	if p.opts.CgroupsPath == "" || said == 0 {
		return
	}
	host, err := hostcgroup.OpenParentLimit(p.opts.CgroupRoot, p.opts.CgroupsPath)
	var limit uint64
	if err == nil {
		limit, err = host.Bytes()
	}
	if err != nil {
		log.G(ctx).WithError(err).Warn("the pod's own memory limit is not set in the guest")
		return
	}
	p.together.host, p.together.seen, p.together.known = host, limit, limit < noLimit
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
	t, limit := &p.together, uint64(0)
	if t.known {
		host, err := t.host.Bytes()
		if err != nil {
			log.G(ctx).WithError(err).Warn("the pod's own memory limit in the guest does not follow the host's")
			return nil
		}
		switch {
		case host >= noLimit:
		case host > t.beside:
			limit = host - t.beside
		default:
			limit = t.set // nothing is left for containers: the host's limit holds
		}
	}
	threads := p.threadsTogether(ctx)
	if limit == t.set && threads == t.threads && !t.unsure {
		return nil
	}
	ctx, stop := p.opts.WhileAlive(ctx)
	defer stop()
	t.unsure = true
	err := p.guest.LimitContainers(ctx, limit, threads)
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

// limitChanged reports whether the host's limit is another than at its last call.
// Kubernetes can change that of a pod alone, and no engine tells the runtime. It is
// for Watch's goroutine.
func (p *Pod) limitChanged() bool {
	t := &p.together
	if !t.known {
		return false
	}
	now, err := t.host.Bytes()
	if err != nil || now == t.seen {
		return false // an error at the pod's end, too
	}
	t.seen = now
	return true
}
