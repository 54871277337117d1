package virtiofs

import (
	"sync/atomic"

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

// stopEvent is the descriptor in an epoll event of the pool's stop.
const stopEvent = -1

// worker is one serving thread.
type worker struct {
	pool   *pool
	rhythm rhythm
	thread *passthrough.Thread
	spare  *job // reused for the next request
	events []unix.EpollEvent
	// turn is odd while the thread, as the front, waits for a kick, and changes
	// with each request.
	turn atomic.Uint64
}

func newWorker(p *pool) *worker {
	return &worker{pool: p, thread: passthrough.NewThread(), events: make([]unix.EpollEvent, 1)}
}

// run serves until the pool closes, or enough other threads are idle.
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

// drain serves what is in a queue. A stopped or broken queue has nothing; the
// front end notices a broken queue by its silence.
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
			w.pool.call()
		}
		w.serve(j)
	}
}

// take returns an unused job.
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
	if takesLong(j.req.Op()) {
		w.pool.yield(w)
	}
	for j != nil {
		written, err := j.req.Finish(w.pool.fs.Serve(w.thread, j.req))
		if err != nil {
			written = 0
		}
		// The error means that the ring broke: then the driver cannot be told.
		_ = j.queue.Return(&j.chain, written)
		w.spare = j
		w.turn.Add(2)
		j = w.pool.leave(j)
	}
}
