package filesync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/guest"
)

const (
	// A look follows a change when nothing has happened for quietTime, or
	// settleTime after it at the latest.
	quietTime  = 5 * time.Millisecond
	settleTime = 100 * time.Millisecond
	// quietTries is how often a source is read and sent in the hope that
	// nothing changes meanwhile; the last try is accepted as it is.
	quietTries = 5
	// A source that changes all the time is sent again only after paceTimes the
	// time that sending took, at most maxPace.
	paceTimes = 4
	maxPace   = 5 * time.Second
	// After a failure the next try follows after retryTime, then after twice
	// the previous pause, at most maxRetryTime.
	retryTime    = time.Second
	maxRetryTime = 64 * time.Second
)

// maxReason is how many characters of an error are logged: the guest may have
// written it.
const maxReason = 1000

func wrap(err error, source string) error {
	return fmt.Errorf("copy %s into the guest: %w", source, err)
}

// update makes the guest's copy equal to the source.
func (c *Copy) update(ctx context.Context) error {
	for try := 1; ; try++ {
		err := c.tryUpdate(ctx, try == quietTries)
		if !errors.Is(err, errChanged) {
			return err
		}
		if !c.settle(ctx) {
			return cmp.Or(context.Cause(ctx), errClosed)
		}
	}
}

// tryUpdate is one try of update. It returns errChanged if the source changed
// meanwhile; with lenient it accepts that.
func (c *Copy) tryUpdate(ctx context.Context, lenient bool) error {
	found, quiet, err := c.look(ctx)
	if err != nil {
		return err
	}
	if !quiet && !lenient {
		return errChanged
	}
	c.logSpecial(ctx, found.special)
	if c.source.name != "" && len(found.tree) == 0 {
		return nil // The file is missing for now: the copy stays.
	}
	return c.send(ctx, plan(c.sent, found.tree), lenient)
}

// look reads the source, and reports whether nothing changed meanwhile.
func (c *Copy) look(ctx context.Context) (*seen, bool, error) {
	looking := c.watch.begin()
	found, err := c.source.look(looking)
	if err != nil {
		return nil, false, err
	}
	quiet := looking.end(ctx) && !found.moved
	if !c.watch.polling || !quiet {
		return found, quiet, nil
	}
	again, err := c.source.look(nil) // There are no events when polling.
	if err != nil {
		return nil, false, err
	}
	return found, maps.Equal(found.tree, again.tree), nil
}

// maxNamed is how many of the files that are not copied are named.
const maxNamed = 10

// logSpecial logs what is not copied, once.
func (c *Copy) logSpecial(ctx context.Context, special map[string]string) {
	more := 0
	for _, p := range slices.Sorted(maps.Keys(special)) {
		switch {
		case c.skipped[p] == special[p]:
		case more < maxNamed:
			more++
			log.G(ctx).Warnf("not copied into the guest: %q, a %s", p, special[p])
		default:
			more++
		}
	}
	if more > maxNamed {
		log.G(ctx).Warnf("not copied into the guest: %d more of such files", more-maxNamed)
	}
	c.skipped = special
}

// run keeps the copy up to date until it is closed, or the guest or the source
// is gone.
func (c *Copy) run(ctx context.Context) {
	var failed failures
	for c.await(ctx, failed) {
		began := time.Now()
		err := c.update(ctx)
		switch {
		case errors.Is(err, errClosed):
			return
		case errors.Is(err, errGone):
			log.G(ctx).Info("what was copied into the guest is gone: the copy stays as it is")
			return
		case guest.Disconnected(err):
			return
		}
		failed.note(ctx, err)
		if !c.sleep(min(maxPace, paceTimes*time.Since(began))) {
			return
		}
	}
}

// failures logs only the first of a series of errors.
type failures struct {
	// pause is the time to the next try, 0 if the last one succeeded.
	pause time.Duration
	// tooLarge is set if the source exceeds its limits.
	tooLarge bool
}

func (f *failures) note(ctx context.Context, err error) {
	if err == nil {
		if f.pause > 0 {
			log.G(ctx).Info("the copy in the guest is up to date again")
		}
		*f = failures{}
		return
	}
	if large := errdefs.IsResourceExhausted(err); f.pause == 0 || large != f.tooLarge {
		f.tooLarge = large
		log.G(ctx).Warnf("cannot bring the copy in the guest up to date: it stays as it was, trying again: %.*v", maxReason, err)
	}
	f.pause = min(maxRetryTime, max(retryTime, 2*f.pause))
}

// await waits until the source should be read: when a change has settled or,
// after a failure, when the pause is over. It returns false when the copy is
// closed.
func (c *Copy) await(ctx context.Context, failed failures) bool {
	var again <-chan time.Time
	if wait := cmp.Or(failed.pause, c.watch.pollTime()); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		again = timer.C
	}
	happened := c.watch.happened
	if failed.pause > 0 && !failed.tooLarge {
		happened = nil // The guest is left alone.
	}
	select {
	case <-c.closing:
		return false
	case <-again:
		return true
	case <-happened:
		return c.settle(ctx)
	}
}

// settle waits until changes have stopped, settleTime at most. It returns false
// when the copy is closed, or ctx is done.
func (c *Copy) settle(ctx context.Context) bool {
	end := time.NewTimer(settleTime)
	defer end.Stop()
	quiet := time.NewTimer(quietTime)
	defer quiet.Stop()
	for {
		select {
		case <-c.closing:
			return false
		case <-ctx.Done():
			return false
		case <-quiet.C:
			return true
		case <-end.C:
			return true
		case <-c.watch.happened:
			quiet.Reset(quietTime)
		}
	}
}

// sleep returns false when the copy is closed.
func (c *Copy) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.closing:
		return false
	case <-timer.C:
		return true
	}
}
