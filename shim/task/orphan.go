package task

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers"
)

// orphanTimeout bounds the kill of a process whose owner is gone.
const orphanTimeout = 10 * time.Second

// orphan is a process whose owner on the host is gone.
type orphan interface {
	IsExec() bool
	Kill(ctx context.Context, signal uint32, all bool) error
	Wait(ctx context.Context) (virtcontainers.Exit, error)
	Forget() error
}

// killOrphan kills a process whose owner on the host is gone. An exec is removed as well,
// also one that was not started: only its owner would delete it. One whose start comes
// in between, from another connection of the owner, is killed then.
func killOrphan(ctx context.Context, p orphan) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), orphanTimeout)
	defer cancel()
	log.G(ctx).Info("the process's owner on the host is gone: it is killed")
	err := killAndForget(ctx, p)
	if p.IsExec() && errdefs.IsFailedPrecondition(err) { // it was not started, and runs now
		err = killAndForget(ctx, p)
	}
	return err
}

func killAndForget(ctx context.Context, p orphan) error {
	err := p.Kill(ctx, uint32(unix.SIGKILL), !p.IsExec())
	unstarted := errdefs.IsFailedPrecondition(err)
	if err != nil && !unstarted && !errdefs.IsNotFound(err) { // it has ended meanwhile
		return err
	}
	if !p.IsExec() {
		return nil
	}
	if !unstarted {
		if _, err := p.Wait(ctx); err != nil {
			return err
		}
	}
	return ignoreNotFound(p.Forget())
}
