package sizing

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// lookEvery is how often a pod looks at what other programs have done to its cgroups:
// reads of a few files. (inotify(7) would take one of the 128 instances that all of
// root's processes have together, for each pod.)
const lookEvery = 10 * time.Second

// startLooking returns a channel that says when to look, and a function to
// call at the end. The channel is nil if there is nothing to see.
func (p *Pod) startLooking() (look <-chan time.Time, stop func()) {
	if !p.above.Any() && !p.canLoseControllers() {
		return nil, func() {}
	}
	tick := time.NewTicker(lookEvery)
	return tick.C, tick.Stop
}

// lookout is what Watch remembers of the host's limits. Kubernetes can change those of a
// pod alone, and no engine tells the runtime.
type lookout struct {
	pod *Pod
	// seen are the limits at the last look that could read them.
	seen hostcgroup.Limits
	// behind is set while the pod has not followed them.
	behind atomic.Bool
}

func (p *Pod) newLookout() *lookout { return &lookout{pod: p, seen: p.first} }

// look follows what other programs have done to the pod's cgroups.
func (l *lookout) look(ctx context.Context) error {
	if now, err := l.pod.above.Limits(); err == nil { // at the pod's end there is an error, too
		if now != l.seen || l.behind.Load() {
			l.pod.mayShrink()
		}
		l.seen = now
	}
	if !l.pod.canLoseControllers() {
		return nil
	}
	return l.pod.regainControllers(ctx)
}

// followAll has the pod follow whenever mayShrink says so, until ctx ends. Each time it
// waits until the machine runs, which may take days.
func (l *lookout) followAll(ctx context.Context) {
	for {
		select {
		case <-l.pod.smaller:
			again := l.behind.Load()
			if err := l.follow(ctx); err != nil && ctx.Err() == nil && !l.pod.opts.Ending() {
				log.G(ctx).WithError(err).Log(levelOf(again), "the pod cannot be made smaller, or does not follow the limits of its cgroup on the host")
			}
		case <-ctx.Done():
			return
		}
	}
}

// follow has the pod follow them (Pod.follow).
func (l *lookout) follow(ctx context.Context) error {
	followed, err := l.pod.follow(ctx)
	l.behind.Store(!followed)
	return err
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
	return p.setAgain(ctx)
}

// setAgain sets what the pod's cgroups have lost. It does not wait until the machine
// runs: its pages can be swapped out meanwhile. Writing the cpuset undoes the binding of
// the vCPUs, which follow binds again once the machine runs.
func (p *Pod) setAgain(ctx context.Context) error {
	if err := p.hold(ctx); err != nil {
		return err
	}
	defer p.letGo()
	if p.opts.Ending() {
		return nil
	}
	if p.opts.Config.Runtime.PinVCPUs {
		p.mayShrink()
	}
	p.placed = ""
	return errors.Join(p.cgroup.SetBound(hostcgroup.Bound{Memory: p.bounded, Processes: maxThreads}), p.placeCgroup(ctx, p.place()))
}
