package virtcontainers

import (
	"context"
	"fmt"
	"time"

	stats "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/log"
)

// Wake wakes a sandbox that hibernates, and waits for that within ctx. It does
// nothing if the sandbox is awake. After a disk error the guest is lost.
func (s *Sandbox) Wake(ctx context.Context) error {
	leave, err := s.calls.enter(ctx, "a call to wake it")
	if err != nil {
		return fmt.Errorf("wake sandbox %s: %w", s.ID, err)
	}
	leave()
	if _, err := s.agent(); err != nil {
		return fmt.Errorf("wake sandbox %s: %w", s.ID, err)
	}
	return nil
}

// watchSleep wakes the sandbox whenever a call asks for it, until it ends: it
// wakes on its own time and not on the call's.
func (s *Sandbox) watchSleep() {
	for {
		select {
		case <-s.wakes:
			s.wake()
		case <-s.lifeCtx.Done():
			return
		}
	}
}

// wake restores the memory and lets the machine run. If that fails the guest is
// lost: its memory is nowhere else. Calls pass then in any case.
func (s *Sandbox) wake() {
	s.mu.Lock()
	z := s.slept
	s.mu.Unlock()
	defer s.discard(z)
	defer s.calls.open()
	defer s.setSlept(nil)
	began := time.Now()
	err := s.wakeFrom(s.lifeCtx, z)
	if err != nil {
		s.lose(fmt.Errorf("the guest's memory could not be restored: %w", err))
		return
	}
	log.G(s.lifeCtx).WithFields(log.Fields{"for": s.calls.caller(), "slept": began.Sub(z.Since).Round(time.Second), "t_wake": milliseconds(time.Since(began))}).Info("sandbox woke")
}

// wakeFrom restores the memory, lets the machine run, and stops listening for
// packets.
func (s *Sandbox) wakeFrom(ctx context.Context, z *slept) error {
	err := s.restore(ctx, z)
	if err == nil {
		err = s.run(ctx)
	}
	_ = z.hush() // a guest that runs is not lost for that
	return err
}

// discard closes what a sandbox was woken from. To remove the image may take long, or
// fail, which is no matter of the guest's: only the sandbox's end waits for it. The
// caller is one of the watchers.
func (s *Sandbox) discard(z *slept) {
	s.watchers.Go(func() {
		if err := z.close(); err != nil {
			log.G(s.lifeCtx).WithError(err).Warn("the memory's image could not be removed")
		}
	})
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

// hibernation describes the sandbox's hibernation; nil if it is awake.
func (s *Sandbox) hibernation() *Hibernation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slept == nil || !s.slept.done.Load() {
		return nil
	}
	return &s.slept.Hibernation
}

// endSleep removes what a sandbox that ends has of its hibernation. Calls that
// wait for its end fail now.
func (s *Sandbox) endSleep() error {
	defer s.calls.end()
	s.mu.Lock()
	z := s.slept
	s.slept = nil
	s.mu.Unlock()
	if z == nil {
		return nil
	}
	return z.close()
}

// rouseToEnd has a sandbox that hibernates wake if it has disks to flush, and
// reports whether its guest runs.
func (s *Sandbox) rouseToEnd() bool {
	h := s.hibernation()
	if h == nil {
		return true
	}
	if !s.files.HasDisks() {
		return false
	}
	ctx, cancel := context.WithTimeout(s.lifeCtx, h.rouseTimeout())
	defer cancel()
	if err := s.Wake(ctx); err != nil {
		log.G(s.lifeCtx).WithError(err).Warn("the sandbox hibernates and could not be woken: its disks may lack what was written last")
		return false
	}
	return true
}

// rouseTimeout bounds waking a sandbox that ends, or one of whose containers does: the
// end must come even if the memory is restored very slowly.
func (h Hibernation) rouseTimeout() time.Duration {
	return wakePatience + pauseTimeout + time.Duration(h.MemoryBytes/rouseRate)*time.Second
}

// countersAsleep returns the statistics of the containers when the sandbox fell
// asleep; nil if it is awake.
func (s *Sandbox) countersAsleep() map[string]*stats.Metrics {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slept == nil {
		return nil
	}
	return s.slept.counters
}
