package virtcontainers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/log"
)

// watch wakes the sandbox whenever a call asks for it, until ctx ends: it wakes on its
// own time and not on the call's. What it was woken from is closed meanwhile: to remove
// the image may take long, or fail, which is no matter of the guest's. watch waits for that.
func (s *sleeper) watch(ctx context.Context) {
	var removals sync.WaitGroup
	defer removals.Wait()
	for {
		select {
		case z := <-s.wakes:
			s.wake(ctx, z)
			removals.Go(func() {
				if err := z.close(); err != nil {
					log.G(ctx).WithError(err).Warn("the memory's image could not be removed")
				}
			})
		case <-ctx.Done():
			return
		}
	}
}

// wake restores the memory and lets the machine run. If that fails the guest is
// lost: its memory is nowhere else. Calls pass then in any case.
func (s *sleeper) wake(ctx context.Context, z *slept) {
	defer s.open()
	began := time.Now()
	if err := s.wakeFrom(ctx, z); err != nil {
		s.pod.lose(fmt.Errorf("the guest's memory could not be restored: %w", err))
		return
	}
	log.G(ctx).WithFields(log.Fields{"for": s.caller(), "slept": began.Sub(z.Since).Round(time.Second), "t_wake": milliseconds(time.Since(began))}).Info("sandbox woke")
}

// wakeFrom restores the memory, lets the machine run, and stops listening for
// packets.
func (s *sleeper) wakeFrom(ctx context.Context, z *slept) error {
	err := s.machine.restore(ctx, z)
	if err == nil {
		err = s.run(ctx)
	}
	_ = z.hush() // a guest that runs is not lost for that
	return err
}

// restore writes the image back into the memory. What QEMU has written meanwhile,
// which it should not, is dropped.
func (m *machine) restore(ctx context.Context, z *slept) error {
	ctx, stop := m.whileAlive(ctx)
	defer stop()
	if err := z.empty(ctx); err != nil {
		return err
	}
	return z.restore(ctx)
}

// end removes what a sandbox that has ended has of its hibernation. Calls that wait for
// its end fail then.
func (s *sleeper) end() error {
	defer s.open()
	if z := s.turnstile.end(); z != nil {
		return z.close()
	}
	return nil
}
