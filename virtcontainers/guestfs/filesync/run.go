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
	// A change is looked at when nothing has happened for quietTime, or
	// settleTime after it at the latest.
	quietTime  = 5 * time.Millisecond
	settleTime = 100 * time.Millisecond
	// quietTries is how often a source is looked at, and sent, in the hope that
	// nothing happens meanwhile; the last one is taken as it is.
	quietTries = 5
	// A source that changes all the time is sent again when paceTimes as much
	// time has gone by as it took, at most maxPace.
	paceTimes = 4
	maxPace   = 5 * time.Second
	// What failed is tried again after retryTime, and then after twice the time
	// before, at most maxRetryTime.
	retryTime    = time.Second
	maxRetryTime = 64 * time.Second
)

// maxReason is how many characters of an error are logged: the guest may have
// written it.
const maxReason = 1000

func wrap(err error, source string) error {
	return fmt.Errorf("copy %s into the guest: %w", source, err)
}

// update makes the guest's copy what the source is.
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

// tryUpdate is update for a source that is quiet: it is errChanged when it is
// not. A lenient one takes it as it is.
func (c *Copy) tryUpdate(ctx context.Context, lenient bool) error {
	found, quiet, err := c.look(ctx)
	if err != nil {
		return err
	}
	defer found.close()
	if !quiet && !lenient {
		return errChanged
	}
	c.logSpecial(ctx, found.special)
	if c.source.name != "" && len(found.tree) == 0 {
		return nil // A file that is not there for now: the copy stays.
	}
	return c.send(ctx, found, plan(c.sent, found.tree), lenient)
}

// look looks at the source, and reports whether nothing has happened meanwhile.
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
	again, err := c.source.look(nil) // Nobody tells of changes.
	if err != nil {
		found.close()
		return nil, false, err
	}
	again.close()
	return found, maps.Equal(found.tree, again.tree), nil
}

// maxNamed is how many files are named that are not copied.
const maxNamed = 10

// logSpecial says what is not copied, once.
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

// failures tell the first of several errors.
type failures struct {
	// pause is the time to the next try, 0 when the last one was well.
	pause time.Duration
	// tooLarge: the source is beyond its limits.
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

// await waits until it is time to look at the source: when something has
// happened and has settled or, after a failure, when its pause is over. It
// returns false when the copy is closed.
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

// settle waits until nothing happens any more, settleTime at most. It returns
// false when the copy is closed, or ctx is done.
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
