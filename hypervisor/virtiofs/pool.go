package virtiofs

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/contain"
	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/internal/ownthread"
)

const (
	// maxThreads bounds the threads, and with them the requests being served.
	maxThreads = 64
	// idleThreads is how many idle threads are kept, and idleTime how long
	// additional ones stay: starting a thread costs more than hundreds of
	// requests.
	idleThreads = 4
	idleTime    = 10 * time.Second
	// maxRequests bounds the requests taken from the queues: being served, or
	// waiting for others of the same group. The rest stays in the ring.
	maxRequests = passthrough.MaxRequests
)

// pool is the threads that serve the queues, and their roles.
type pool struct {
	dev  *device
	fs   *passthrough.FS
	jail contain.Jail
	// epoll watches the queues' kicks, and bench watches help, which calls a
	// reserve: edge-triggered, so that each event wakes one thread. Both watch
	// stop, which wakes all threads permanently. epoll watches again, which is as
	// a kick: the kicks themselves are the front end's, and may be blocking.
	epoll, bench, help, again, stop int
	spareP                          bool // the front may linger
	// stir wakes the watchdog; closing closed ends it.
	stir, closed chan struct{}

	threads sync.WaitGroup // including the watchdog
	failed  chan<- error   // why the device cannot continue

	// mu guards the following, for a few instructions at a time.
	mu      sync.Mutex
	closing bool
	// count is the number of all threads, starting of those that have not
	// checked the queues yet, and reserves of those that can be called.
	count, starting, reserves int
	called                    bool            // a reserve was called and has not arrived yet
	front                     *worker         // nil: the next idle thread becomes it
	watched                   bool            // the watchdog is active
	kicks                     [queueCount]int // -1 for none
	busy                      map[uint64]int  // requests being served, by group (groupOf)
	working                   int             // their sum
	parked                    map[uint64][]*job
	taken                     int // requests not returned yet
}

// newPool makes a pool and starts its first thread, to check that this works.
func newPool(dev *device, fs *passthrough.FS, jail contain.Jail, failed chan error) (*pool, error) {
	p := &pool{
		dev: dev, fs: fs, jail: jail, spareP: hasSpareP(), epoll: -1, bench: -1, help: -1, again: -1, stop: -1,
		stir: make(chan struct{}, 1), closed: make(chan struct{}), failed: failed,
		kicks: [queueCount]int{-1, -1}, busy: map[uint64]int{}, parked: map[uint64][]*job{},
	}
	if err := p.open(); err != nil {
		return nil, errors.Join(err, p.release())
	}
	p.threads.Go(p.watchdog)
	if err := p.first(); err != nil {
		return nil, errors.Join(fmt.Errorf("start serving threads: %w", err), p.close(time.Second))
	}
	return p, nil
}

// open makes the descriptors on which the threads wait.
func (p *pool) open() (err error) {
	for _, fd := range []*int{&p.epoll, &p.bench} {
		if *fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
			return fmt.Errorf("make epoll set: %w", err)
		}
	}
	for _, fd := range []*int{&p.help, &p.again, &p.stop} {
		if *fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			return fmt.Errorf("make eventfd: %w", err)
		}
	}
	stop, edge := unix.EpollEvent{Events: unix.EPOLLIN, Fd: stopEvent}, unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}
	err = errors.Join(
		unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, p.stop, &stop),
		unix.EpollCtl(p.bench, unix.EPOLL_CTL_ADD, p.stop, &stop),
		unix.EpollCtl(p.bench, unix.EPOLL_CTL_ADD, p.help, &edge),
		unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, p.again, &edge),
	)
	if err != nil {
		return fmt.Errorf("fill epoll sets: %w", err)
	}
	return nil
}

// release closes what open has made.
func (p *pool) release() error {
	var errs []error
	for _, fd := range []int{p.epoll, p.bench, p.help, p.again, p.stop} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

// first starts a thread and waits until it is confined.
func (p *pool) first() error {
	ready := make(chan error, 1)
	p.mu.Lock()
	p.count++
	p.starting++
	p.mu.Unlock()
	p.start(ready)
	return <-ready
}

// start runs a thread that is already counted. ready, if not nil, receives the
// result of confining it.
func (p *pool) start(ready chan<- error) {
	p.threads.Add(1)
	ownthread.Go(func() {
		defer p.threads.Done()
		err := p.jail.Enter()
		if ready != nil {
			ready <- err
		}
		p.mu.Lock()
		p.starting--
		if err != nil {
			p.count--
			p.failLocked(err)
		}
		p.mu.Unlock()
		if err == nil {
			newWorker(p).run()
		}
	})
}

// failLocked records that a thread cannot serve: requests might stay
// unanswered, so the device must end. mu is held.
func (p *pool) failLocked(err error) {
	select {
	case p.failed <- err:
	default: // the first error is enough
	}
}

// growLocked starts another thread, which first checks the queues, unless there
// are enough or one is already starting. mu is held.
func (p *pool) growLocked() {
	if p.count < maxThreads && p.starting == 0 && !p.closing {
		p.count++
		p.starting++
		p.start(nil)
	}
}

// watch lets the threads wait for a queue's kick.
func (p *pool) watch(queue, fd int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(queue)}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("wait for kicks: %w", err)
	}
	p.kicks[queue] = fd
	notify(p.again) // for earlier requests
	return nil
}

func (p *pool) unwatch(queue int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if fd := p.kicks[queue]; fd >= 0 {
		_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, nil)
		p.kicks[queue] = -1
	}
}

// notify adds one to an eventfd of the pool. If the counter is full, it is readable anyway.
func notify(fd int) {
	one := [8]byte{1}
	_, _ = unix.Write(fd, one[:])
}

// end makes the threads end.
func (p *pool) end() {
	p.mu.Lock()
	if !p.closing {
		p.closing = true
		close(p.closed)
	}
	p.mu.Unlock()
	notify(p.stop)
}

// close ends the threads and waits for them, at most d. On an error some are
// left, along with the pool's descriptors.
func (p *pool) close(d time.Duration) error {
	p.end()
	ended := make(chan struct{})
	go func() { p.threads.Wait(); close(ended) }()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ended:
		return p.release()
	case <-timer.C:
		p.mu.Lock()
		defer p.mu.Unlock()
		return fmt.Errorf("end serving threads: %d still wait for a file system after %v", p.count, d)
	}
}
