package manager

import (
	"context"
	"errors"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/shim/engine"
	"github.com/katabox/katabox/virtcontainers"
)

// sweepKillTimeout bounds the wait for a process that outlived its shim: the
// kernel killed it long before.
const sweepKillTimeout = 500 * time.Millisecond

// Sweep removes what killed shims left: mounts, records, sockets. It is called
// before Start. For engines that call delete it removes only what delete could
// not: for an earlier container with the same id immediately, for others later. It
// logs failures, and the start continues.
func Sweep(ctx context.Context, p *Params, platform virtcontainers.Platform) {
	platform.Owner = p.owner()
	err := sweep(p, platform)
	if err == nil {
		return
	}
	// start has no other log: its stderr is for its own failure.
	if logged, openErr := OpenLog(ctx, p); openErr == nil {
		log.G(logged).WithError(err).Warn("not all leftovers of a killed shim could be removed")
	}
}

func sweep(p *Params, platform virtcontainers.Platform) error {
	if !engine.For(p.Namespace, p.GRPCAddress).SweepOnStart {
		return virtcontainers.SweepAbandoned(platform, p.ID, sweepKillTimeout)
	}
	swept, err := virtcontainers.Sweep(platform, sweepKillTimeout)
	for _, id := range swept {
		dead := *p
		dead.ID = id
		err = errors.Join(err, removeSocket(socketAddress(&dead)))
	}
	return err
}
