package virtcontainers

import (
	"context"
	"errors"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
)

const (
	// clockFirst is when a clock that was set is checked, at the pod's start and after
	// a pause: it was set as precisely as that call was fast, which on a busy host may
	// have taken a second. Later it is checked every clockInterval.
	clockFirst, clockInterval = 2 * time.Second, 30 * time.Second
	// clockPatience bounds a check. A guest that does not answer is the health check's.
	clockPatience = 10 * time.Second
	// clockTries is how many answers a check waits for, unless one comes within
	// clockTolerance. That is how far off a clock may be.
	clockTries, clockTolerance = 4, 2 * time.Millisecond
	// clockStep is how far off a clock must be to be set at once: programs that
	// measure time by it are misled then. It is ntpd's (STEPT in its ntp_loopfilter.c).
	clockStep = 128 * time.Millisecond
)

// clock keeps a guest's wall clock with the host's. The host's is adjusted by NTP, and
// is what files of the share are dated by; the guest's runs on its own.
type clock struct {
	// adjust adds to the guest's clock and returns what it showed then.
	adjust func(ctx context.Context, by time.Duration, step bool) (time.Time, error)
	// checked says that it was checked since it was set.
	checked bool
}

// watchClock keeps the guest's clock until the sandbox ends.
func (s *Sandbox) watchClock() {
	c, wait := clock{adjust: s.client.AdjustClock}, clockFirst
	for {
		select {
		case <-time.After(wait):
			wait = clockInterval
		case <-s.clockSet:
			c.checked, wait = false, clockFirst
			continue
		case <-s.lifeCtx.Done():
			return
		}
		late, err := s.checkClock(&c)
		switch {
		case errors.Is(err, errdefs.ErrNotImplemented):
			return
		case err != nil:
			log.G(s.lifeCtx).WithError(err).Debug("the guest's clock was not checked")
		case late.Abs() > clockStep:
			log.G(s.lifeCtx).WithField("late", late).Info("the guest's clock was wrong, and was set")
		}
	}
}

// setClock sets the clock of a guest that was paused, and has it checked soon after,
// also if that failed.
func (s *Sandbox) setClock(ctx context.Context) error {
	err := s.client.SetClock(ctx)
	select {
	case s.clockSet <- struct{}{}:
	default:
	}
	return err
}

// checkClock checks the clock, unless the guest hibernates: it is set when it wakes.
func (s *Sandbox) checkClock(c *clock) (time.Duration, error) {
	leave, ok := s.sleeper.tryEnter()
	if !ok {
		return 0, nil
	}
	defer leave()
	ctx, cancel := context.WithTimeout(s.lifeCtx, clockPatience)
	defer cancel()
	return c.check(ctx)
}

// check compares the clocks and corrects the guest's. It returns by how much that was
// late, 0 if it was right.
func (c *clock) check(ctx context.Context) (time.Duration, error) {
	late, within, err := c.compare(ctx)
	if err != nil {
		return 0, err
	}
	first := !c.checked
	c.checked = true
	if late.Abs() <= max(within, clockTolerance) {
		return 0, nil
	}
	// Where time has just been set it may also jump forward a little; never back.
	step := late.Abs() > clockStep || first && late > 0
	_, err = c.adjust(ctx, late, step)
	return late, err
}

// compare returns how late the guest's clock is, to within a duration: half that of
// the fastest of some calls. The answer is from some moment of its call.
func (c *clock) compare(ctx context.Context) (late, within time.Duration, err error) {
	for try := range clockTries {
		asked := time.Now()
		shown, err := c.adjust(ctx, 0, false)
		if err != nil {
			return 0, 0, err
		}
		half := time.Since(asked) / 2
		if try == 0 || half < within {
			late, within = asked.Add(half).Sub(shown), half
		}
		if within <= clockTolerance {
			break
		}
	}
	return late, within, nil
}
