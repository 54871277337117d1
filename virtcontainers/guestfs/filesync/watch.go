package filesync

import (
	"context"
	"os"
	"time"

	"github.com/containerd/log"
)

// pollTime is the time between two scans of a source that cannot be watched.
const pollTime = 2 * time.Second

// watcher signals when something that it watches may have changed.
type watcher struct {
	// happened holds a token when something may have changed.
	happened chan struct{}
	instance *instance // nil: nothing is watched
	// polling is set if not everything can be watched, so that regular looks
	// are needed.
	polling bool

	// round counts the looks. watched has what is watched, by watch descriptor;
	// the instance's mu guards it.
	round   int
	watched map[int32]watched
}

// watched is one file that is watched: all of it, or one name in a directory.
type watched struct {
	name string
	// round is the last look that found it.
	round int
}

// newWatcher makes a watcher that watches nothing yet. It never fails: what
// cannot be watched is polled.
func newWatcher(ctx context.Context) *watcher {
	w := &watcher{happened: make(chan struct{}, 1), watched: map[int32]watched{}}
	in, err := join()
	if err != nil {
		w.poll(ctx, err)
	}
	w.instance = in
	return w
}

// poll switches to polling.
func (w *watcher) poll(ctx context.Context, why error) {
	if !w.polling {
		log.G(ctx).WithError(why).Warnf("files copied into the guest are checked for changes every %v: they cannot be watched", pollTime)
	}
	w.polling = true
}

// pollTime returns the time to the next look, or 0 if events report all
// changes.
func (w *watcher) pollTime() time.Duration {
	if w.polling {
		return pollTime
	}
	return 0
}

// signal never blocks.
func (w *watcher) signal() {
	select {
	case w.happened <- struct{}{}:
	default:
	}
}

// looking is a watcher during one look.
type looking struct {
	*watcher
	failed error
}

var _ watches = (*looking)(nil)

// begin begins a look: earlier changes no longer matter.
func (w *watcher) begin() *looking {
	if w.pending() {
		<-w.happened
	}
	if w.instance != nil {
		w.instance.mu.Lock()
		w.round++
		w.instance.mu.Unlock()
	}
	return &looking{watcher: w}
}

// add implements watches.
func (l *looking) add(f *os.File, name string) {
	if l.instance == nil {
		return
	}
	if err := l.instance.add(l.watcher, f, name); err != nil {
		l.failed = err
	}
}

// end ends a look at the whole source: what the look did not find is no longer
// watched. It reports whether nothing has changed since begin.
func (l *looking) end(ctx context.Context) (quiet bool) {
	if l.failed != nil {
		l.poll(ctx, l.failed)
	}
	if l.instance == nil {
		return true
	}
	l.instance.mu.Lock()
	for wd, w := range l.watched {
		if w.round != l.round {
			l.instance.remove(l.watcher, wd)
		}
	}
	l.instance.mu.Unlock()
	return !l.pending()
}

// pending reports whether something has changed.
func (w *watcher) pending() bool {
	if w.instance != nil {
		_ = w.instance.conn.Control(func(fd uintptr) { w.instance.drain(int(fd)) })
	}
	return len(w.happened) > 0
}

func (w *watcher) close() {
	if w.instance == nil {
		return
	}
	w.instance.mu.Lock()
	for wd := range w.watched {
		w.instance.remove(w, wd)
	}
	w.instance.mu.Unlock()
	w.instance.leave()
	w.instance = nil
}
