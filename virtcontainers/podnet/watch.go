package podnet

import (
	"context"
	"errors"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
)

// A namespace that cannot be watched, for lack of a descriptor or of memory, is tried
// again after watchPause, then after twice that, and so on up to maxWatchPause.
const watchPause, maxWatchPause = time.Second, 64 * time.Second

// Watch follows the namespace until ctx ends: the guest gets links that appear
// later and loses those that are removed. After each change it also rereads the
// resolv.conf files that resolvConfs lists, because Docker rewrites a
// container's when it joins its first user-defined network.
func (p *Pod) Watch(ctx context.Context, resolvConfs func() []string) {
	if p.links == nil {
		return
	}
	for pause := watchPause; ; pause = min(2*pause, maxWatchPause) {
		began := time.Now()
		err := p.links.Watch(ctx, func() error { return p.followLogged(ctx, resolvConfs) })
		if err == nil || ctx.Err() != nil || p.gone() {
			return // at the guest's end the network may be closed before ctx ends
		}
		if time.Since(began) > maxWatchPause {
			pause = watchPause
		}
		level := log.DebugLevel
		if pause == watchPause {
			level = log.ErrorLevel // the first of several
		}
		log.G(ctx).WithError(err).Log(level, "the pod's network is not watched for a while: it will be tried again")
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

func (p *Pod) followLogged(ctx context.Context, resolvConfs func() []string) error {
	err := p.follow(ctx, resolvConfs)
	if err != nil && ctx.Err() == nil && !p.gone() {
		log.G(ctx).WithError(err).Error("the guest could not follow a change of the pod's network")
	}
	return err
}

func (p *Pod) follow(ctx context.Context, resolvConfs func() []string) error {
	ctx, leave, err := p.pass(ctx)
	if err != nil {
		return err
	}
	defer leave()
	err = p.links.Plug(ctx, p.vm)
	if errdefs.IsInvalidArgument(err) {
		p.refusal.Store(&refusal{err, time.Now()})
	}
	// The guest gets the rest even if a link cannot be joined.
	err = errors.Join(err, p.Tell(ctx))
	for _, path := range resolvConfs() {
		p.OpenResolvers(ctx, path)
	}
	return err
}
