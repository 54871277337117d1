package sizing

import (
	"context"
	"math"

	"github.com/containerd/log"
)

// growableMiB returns how much memory the machine may get where want is needed now: a
// machine with few memory slots is given more at once, for containers to come. It is
// no more than all the pod's containers may use, if that is known, and does not make
// a machine too large for the pod's memory limit on the host. The guest's page cache
// fills what a machine has. Where more is needed than is known, as with huge pages,
// which the pod's memory limit does not count, more may be needed later, too.
func (p *Pod) growableMiB(ctx context.Context, want uint64) uint64 {
	most := p.machine.MaxMemoryMiB
	if all := p.machine.Size(p.whole).MemoryMiB; p.whole.MemoryBytes() > 0 && want <= all {
		most = all
	}
	return max(want, min(most, p.hostRoomMiB(ctx, want)))
}

// hostRoomMiB returns the largest size that fits into the pod's cgroup on the host. A
// machine that does not fit even with what it needs has no such limit: with modules of
// exactly that it would only run out of memory slots. It is charged elsewhere, or with
// SandboxCgroupOnly to the pod all the same.
func (p *Pod) hostRoomMiB(ctx context.Context, want uint64) uint64 {
	if p.cgroup == nil || !p.above.Any() || p.hugePageMiB > 0 {
		return math.MaxUint64
	}
	limits, err := p.above.Limits()
	if err != nil {
		log.G(ctx).WithError(err).Warn("the machine gets no more memory at once than it needs now")
		return want
	}
	limit := limits.Memory >> 20
	if room := limit - min(limit, p.besideMiB()); room >= want {
		return room
	}
	return math.MaxUint64
}

// reached returns how large the machine is by the VMM's answer to a request, 0 for none,
// that can have made it as large as most. The pod's bound on the host follows that
// number, and a compromised VMM could say any: it is believed no more than that, or than
// it had.
func reached[T uint32 | uint64](had, now, most T) T {
	if now == 0 {
		return had
	}
	return min(now, max(had, most))
}
