package virtiofs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser"
	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// job is one request, from Take to Return.
type job struct {
	queue *vhostuser.Queue
	chain vhostuser.Chain
	req   *wire.Request
	group uint64
}

// stopEvent is what an epoll event of the pool's stop has for a descriptor.
const stopEvent = -1

// worker is one serving thread.
type worker struct {
	pool   *pool
	thread *passthrough.Thread
	spare  *job // to be used for the next request
	events []unix.EpollEvent
}

func newWorker(p *pool) *worker {
	return &worker{pool: p, thread: passthrough.NewThread(), events: make([]unix.EpollEvent, 1)}
}

// run serves until the pool closes, or enough other threads wait.
func (w *worker) run() {
	for {
		for _, q := range w.pool.dev.queues {
			w.drain(q)
		}
		if !w.wait() {
			return
		}
	}
}

// wait waits for a kick. It is false when the thread is to end.
func (w *worker) wait() bool {
	p := w.pool
	p.mu.Lock()
	if p.closing || p.waiting >= idleThreads {
		p.count--
		p.mu.Unlock()
		return false
	}
	p.waiting++
	p.mu.Unlock()
	n, err := 0, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.EpollWait(p.epoll, w.events, -1)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting--
	if err != nil {
		p.failLocked(fmt.Errorf("wait for requests: %w", err))
	}
	if err != nil || n == 1 && w.events[0].Fd == stopEvent || p.closing {
		p.count--
		return false
	}
	if p.waiting == 0 {
		p.growLocked()
	}
	return true
}

// drain serves what is in a queue. A queue that is stopped or broken has
// nothing; that it broke the front end learns by its silence.
func (w *worker) drain(q *vhostuser.Queue) {
	for w.pool.reserve() {
		j := w.take()
		ok, more, err := q.Take(&j.chain)
		if err != nil || !ok {
			w.spare = j
			w.pool.unreserve()
			return
		}
		j.queue = q
		if more {
			w.pool.wake(q.Index())
		}
		w.serve(j)
	}
}

// take gives an unused job.
func (w *worker) take() *job {
	if j := w.spare; j != nil {
		w.spare = nil
		return j
	}
	return &job{req: wire.NewRequest()}
}

// serve serves a request, and then those that had to wait for it.
func (w *worker) serve(j *job) {
	if err := j.req.Load(j.chain.Out, j.chain.In); err != nil {
		_ = j.queue.Return(&j.chain, 0)
		w.pool.unreserve()
		w.spare = j
		return
	}
	if !w.pool.enter(j, w.pool.groupOf(j.req)) {
		return
	}
	for j != nil {
		written, err := j.req.Finish(w.pool.fs.Serve(w.thread, j.req))
		if err != nil {
			written = 0
		}
		// The error is that of a ring that broke: then there is nobody to tell.
		_ = j.queue.Return(&j.chain, written)
		w.spare = j
		j = w.pool.leave(j)
	}
}
