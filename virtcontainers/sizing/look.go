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
	behind bool
}

func (p *Pod) newLookout() *lookout { return &lookout{pod: p, seen: p.first} }

// look follows what other programs have done to the pod's cgroups.
func (l *lookout) look(ctx context.Context) error {
	if now, err := l.pod.above.Limits(); err == nil { // at the pod's end there is an error, too
		if now != l.seen || l.behind {
			l.pod.mayShrink()
		}
		l.seen = now
	}
	if !l.pod.canLoseControllers() {
		return nil
	}
	return l.pod.regainControllers(ctx)
}

// follow has the pod follow them (Pod.follow).
func (l *lookout) follow(ctx context.Context) error {
	followed, err := l.pod.follow(ctx)
	l.behind = !followed
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

// setAgain sets what was lost.
func (p *Pod) setAgain(ctx context.Context) error {
	return errors.Join(p.setCgroupAgain(ctx), p.pinAgain(ctx))
}

// setCgroupAgain sets what the pod's cgroups have lost. It does not wait until the machine
// runs: its pages can be swapped out meanwhile.
func (p *Pod) setCgroupAgain(ctx context.Context) error {
	if err := p.hold(ctx); err != nil {
		return err
	}
	defer p.letGo()
	if p.opts.Ending() {
		return nil
	}
	p.placed = ""
	return errors.Join(p.cgroup.SetBound(hostcgroup.Bound{Memory: p.bounded, Processes: maxThreads}), p.placeCgroup(ctx, p.place()))
}

// pinAgain binds the vCPUs, which writing the cpuset has undone. For that the machine has
// to run.
func (p *Pod) pinAgain(ctx context.Context) error {
	if !p.opts.Config.Runtime.PinVCPUs {
		return nil
	}
	leave, err := p.opts.EnterAwake(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := p.hold(ctx); err != nil {
		return err
	}
	defer p.letGo()
	if !p.opts.Ending() {
		p.pin(ctx, p.place().CPUs)
	}
	return nil
}
