package sizing

import (
	"context"
	"errors"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// lookEvery is how often a pod looks at what other programs have done to its cgroups:
// reads of a few files. (inotify(7) would take one of the 128 instances that all of
// root's processes have together, for each pod.)
const lookEvery = 10 * time.Second

// startLooking returns a channel that says when to call lookAtHost, and a function to
// call at the end. The channel is nil if there is nothing to see.
func (p *Pod) startLooking() (look <-chan time.Time, stop func()) {
	if !p.above.Any() && !p.canLoseControllers() {
		return nil, func() {}
	}
	tick := time.NewTicker(lookEvery)
	return tick.C, tick.Stop
}

// lookAtHost follows what other programs have done to the pod's cgroups.
func (p *Pod) lookAtHost(ctx context.Context) error {
	if p.limitsChanged() {
		p.mayShrink()
	}
	if !p.canLoseControllers() {
		return nil
	}
	return p.regainControllers(ctx)
}

func (p *Pod) canLoseControllers() bool { return p.cgroup != nil && p.cgroup.CanLose() }

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
