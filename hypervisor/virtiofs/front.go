package virtiofs

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// One thread, the front, waits for the driver's kicks and serves the requests;
// the others are reserves. If all waited for kicks, the kernel would wake
// another one for each request that arrives before the front waits again:
// threads would alternate, and none keep its CPU.
//
// A reserve is called when there is more than one request, and to replace a
// front that is busy for long: the watchdog notices that within two ticks, and
// before a request that is known to take long the front hands over by itself.

// watchTick is the watchdog's interval while requests arrive.
const watchTick = 5 * time.Millisecond

// takesLong reports whether a request probably waits for a disk.
func takesLong(op wire.Op) bool {
	switch op {
	case wire.Fsync, wire.Fsyncdir, wire.Syncfs, wire.Fallocate, wire.CopyFileRange:
		return true
	}
	return false
}

// wait waits for work. It returns false when the thread must end.
func (w *worker) wait() bool {
	p := w.pool
	p.mu.Lock()
	if p.closing {
		p.endLocked(w)
		p.mu.Unlock()
		return false
	}
	if p.front == nil {
		p.front = w
	}
	leads := p.front == w
	if !leads {
		p.reserves++
	}
	p.mu.Unlock()
	if leads {
		return w.lead()
	}
	return w.standBy()
}

// lead waits for a kick.
func (w *worker) lead() bool {
	p := w.pool
	w.turn.Add(1)
	n, err := w.await()
	w.turn.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.endsLocked(w, n, err) {
		return false
	}
	if p.reserves == 0 {
		p.growLocked()
	}
	p.stirLocked()
	return true
}

// await waits for a kick, at first without giving up its P if a kick is
// expected soon.
func (w *worker) await() (n int, err error) {
	began := time.Now()
	if w.pool.spareP && w.rhythm.linger() {
		n, err = epollHeld(w.pool.epoll, &w.events[0], lingerMost)
	}
	for n == 0 && err == nil || errors.Is(err, unix.EINTR) {
		n, err = unix.EpollWait(w.pool.epoll, w.events, -1)
	}
	w.rhythm.waited(time.Since(began))
	return n, err
}

// standBy waits to be called. If it was not called for long, and there are
// other reserves, the thread ends.
func (w *worker) standBy() bool {
	p := w.pool
	n, err := 0, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.EpollWait(p.bench, w.events, int(idleTime.Milliseconds()))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reserves--
	if n > 0 {
		p.called = false
	}
	if n == 0 && err == nil && p.reserves >= idleThreads {
		p.endLocked(w)
		return false
	}
	return !p.endsLocked(w, n, err)
}

// endsLocked ends a thread that was told to end, or cannot wait. mu is held.
func (p *pool) endsLocked(w *worker, n int, err error) bool {
	if err != nil {
		p.failLocked(fmt.Errorf("wait for requests: %w", err))
	}
	if err == nil && !p.closing && (n == 0 || w.events[0].Fd != stopEvent) {
		return false
	}
	p.endLocked(w)
	return true
}

// endLocked removes an ending thread from the lists. mu is held.
func (p *pool) endLocked(w *worker) {
	p.count--
	if p.front == w {
		p.front = nil
	}
}

// call makes a reserve check the queues.
func (p *pool) call() {
	p.mu.Lock()
	p.callLocked()
	p.mu.Unlock()
}

// callLocked is call with mu held. One called reserve at a time is enough: if
// it finds more than one request it calls the next.
func (p *pool) callLocked() {
	switch {
	case p.reserves == 0:
		p.growLocked()
	case !p.called:
		p.called = true
		notify(p.help)
	}
}

// yield makes another thread the front, before a request that takes long.
func (p *pool) yield(w *worker) {
	p.mu.Lock()
	if p.front == w {
		p.front = nil
		p.callLocked()
	}
	p.mu.Unlock()
}

// stirLocked wakes the watchdog. mu is held.
func (p *pool) stirLocked() {
	if !p.watched {
		p.watched = true
		p.stir <- struct{}{} // has room: it is received before watched becomes false
	}
}

// watchdog replaces fronts that are busy for long, until the pool closes.
func (p *pool) watchdog() {
	timer := time.NewTimer(watchTick)
	defer timer.Stop()
	for {
		select {
		case <-p.stir:
		case <-p.closed:
			return
		}
		var seen sight
		for p.watch1(&seen) {
			timer.Reset(watchTick)
			select {
			case <-timer.C:
			case <-p.closed:
				return
			}
		}
	}
}

// sight is what the watchdog saw last.
type sight struct {
	front *worker
	turn  uint64
}

// watch1 checks once. It returns false if nothing has arrived since the last
// check.
func (p *pool) watch1(last *sight) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.front == nil {
		p.callLocked()
		*last = sight{}
		return true
	}
	now := sight{p.front, p.front.turn.Load()}
	same, busy := now == *last, now.turn%2 == 0
	*last = now
	switch {
	case same && busy:
		p.front = nil
		p.callLocked()
	case same:
		p.watched = false
		return false
	}
	return true
}
