package sizing

import (
	"context"
	"errors"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// lookEvery is how often a pod looks whether its cgroups have lost controllers: a
// read of a file or two.
const lookEvery = 10 * time.Second

// lookAfterControllers returns a channel that says when to call regainControllers,
// and a function to call at the end. The channel is nil if nothing can be lost.
func (p *Pod) lookAfterControllers() (look <-chan time.Time, stop func()) {
	if p.cgroup == nil || !p.cgroup.CanLose() {
		return nil, func() {}
	}
	tick := time.NewTicker(lookEvery)
	return tick.C, tick.Stop
}

// regainControllers turns on the controllers that another program, such as systemd,
// has turned off for the pod's cgroups, and sets again what was lost with them.
func (p *Pod) regainControllers(ctx context.Context) error {
	regained := p.cgroup.Regain()
	if len(regained) == 0 {
		return nil
	}
	log.G(ctx).WithField("controllers", regained).
		Info("controllers of the pod's cgroup on the host were turned off, and are on again")
	leave, err := p.opts.EnterAwake(ctx) // A vCPU is pinned in a machine that runs.
	if err != nil {
		return err
	}
	defer leave()
	if err := p.hold(ctx); err != nil {
		return err
	}
	defer p.letGo()
	if p.opts.Ending() {
		return nil
	}
	p.placed = ""
	return errors.Join(p.cgroup.SetBound(hostcgroup.Bound{Memory: p.bounded, Processes: maxThreads}), p.placePod(ctx))
}
