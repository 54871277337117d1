package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/guest"
)

// whileAlive is a context that also ends when the VM or virtiofsd does.
func (s *Sandbox) whileAlive(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-s.vm.Done():
			cancel(s.death())
		case <-s.files.Done():
			cancel(s.filesLost())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// explain adds to an error of the guest's why it really happened, and what
// the guest said last.
func (s *Sandbox) explain(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil && !errors.Is(err, s.vm.Err()) {
		cause = s.died(err)
	}
	if cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if tail := strings.TrimSpace(s.vm.ConsoleTail()); tail != "" {
		err = fmt.Errorf("%w; end of the guest's console: %s", err, tail)
	}
	return err
}

// explainIfGone adds the guest's last words where it was the guest's death
// that made a call fail.
func (s *Sandbox) explainIfGone(ctx context.Context, err error) error {
	if s.died(err) == nil {
		return err
	}
	return s.explain(ctx, err)
}

// deathWait is how long the end of a connection, or of virtiofsd, waits for
// the news of the machine's end: they come a moment before the monitor's
// process is reaped.
const deathWait = time.Second

func (s *Sandbox) awaitDeath() {
	select {
	case <-s.vm.Done():
	case <-time.After(deathWait):
	}
}

// filesLost says why the pod's files are served no more: by themselves, or with
// the machine.
func (s *Sandbox) filesLost() error {
	s.awaitDeath()
	if cause := s.died(nil); cause != nil {
		return cause
	}
	return s.files.Err()
}

// died reports whether the VM's end is behind an error, and if so why it ended.
func (s *Sandbox) died(err error) error {
	// The agent's "canceled" is that of a server that loses its connection.
	if guest.Disconnected(err) || errors.Is(err, context.Canceled) || errdefs.IsCanceled(err) {
		s.awaitDeath()
	}
	if closed(s.vm.Done()) {
		return s.death()
	}
	return nil
}

// death says why the VM ended; it must have.
func (s *Sandbox) death() error { return fmt.Errorf("the virtual machine ended: %w", s.vm.Err()) }
