package filesync

import (
	"context"
	"os"
	"time"

	"github.com/containerd/log"
)

// pollTime is the time between two looks at a source that cannot be watched.
const pollTime = 2 * time.Second

// watcher tells when something may have changed in what it watches.
type watcher struct {
	// happened has a token when something did.
	happened chan struct{}
	instance *instance // nil: nothing is watched
	// polling: not all can be watched, and looks are needed from time to time.
	polling bool

	// round counts the looks. watched, which the instance's mu guards, is what
	// is watched, by watch descriptor.
	round   int
	watched map[int32]watched
}

// watched is one file that is watched: all of it, or one name in a directory.
type watched struct {
	name string
	// round is the last look that came by.
	round int
}

// newWatcher makes a watcher of nothing. It never fails: what cannot be watched
// is polled.
func newWatcher(ctx context.Context) *watcher {
	w := &watcher{happened: make(chan struct{}, 1), watched: map[int32]watched{}}
	in, err := join()
	if err != nil {
		w.poll(ctx, err)
	}
	w.instance = in
	return w
}

// poll changes over to polling.
func (w *watcher) poll(ctx context.Context, why error) {
	if !w.polling {
		log.G(ctx).WithError(why).Warnf("files copied into the guest are checked for changes every %v: they cannot be watched", pollTime)
	}
	w.polling = true
}

// pollTime is the time to the next look, 0 when it is known when there is
// something to see.
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

// begin begins a look: what happened before is of no interest any more.
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

// end ends a look that was at the whole source: what it has not come by is not
// watched any more. It reports whether nothing has happened since begin.
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

// pending reports whether something has happened.
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
