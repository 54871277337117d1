package manager

import (
	"context"
	"errors"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/shim/engine"
	"github.com/katabox/katabox/virtcontainers"
)

// sweepKillTimeout bounds the end of a process that outlived its shim: the
// kernel has killed it long before.
const sweepKillTimeout = 500 * time.Millisecond

// Sweep takes away what killed shims left: mounts, records, sockets. It comes
// before Start, and does something only for engines that never call delete.
// What cannot be taken away is logged; the start goes on.
func Sweep(ctx context.Context, p *Params, platform virtcontainers.Platform) {
	if !engine.For(p.Namespace, p.GRPCAddress).SweepOnStart {
		return
	}
	platform.Owner = p.owner()
	swept, err := virtcontainers.Sweep(platform, sweepKillTimeout)
	for _, id := range swept {
		dead := *p
		dead.ID = id
		err = errors.Join(err, removeSocket(socketAddress(&dead)))
	}
	if err == nil {
		return
	}
	// start has no log of its own: its stderr is for why it failed.
	if logged, openErr := OpenLog(ctx, p); openErr == nil {
		log.G(logged).WithError(err).Warn("not all leftovers of a killed shim could be removed")
	}
}
