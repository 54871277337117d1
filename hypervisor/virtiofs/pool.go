package virtiofs

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/child"
	"github.com/katabox/katabox/hypervisor/virtiofs/contain"
	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
)

const (
	// maxThreads bounds the threads, and with them the requests at work.
	maxThreads = 64
	// idleThreads is how many stay to wait when there is nothing to do.
	idleThreads = 4
	// maxRequests bounds what is taken from the queues: at work, or waiting
	// for others of the same group. What is beyond stays in the ring.
	maxRequests = 512
)

// pool is the threads that serve the queues, and who of them may do what.
type pool struct {
	dev  *device
	fs   *passthrough.FS
	jail contain.Jail
	// epoll has the queues' kicks, edge-triggered so that one thread wakes
	// for each, and stop, which wakes all of them for good.
	epoll, stop int

	threads sync.WaitGroup
	failed  chan error // has room for one: why the device cannot go on

	// mu guards the following, for a few instructions at a time.
	mu      sync.Mutex
	closing bool
	// count is all threads, waiting those that would see the next kick.
	count, waiting int
	kicks          [queueCount]int // -1 for none
	busy           map[uint64]int  // requests at work, by group (groupOf)
	working        int             // their sum
	parked         map[uint64][]*job
	taken          int // requests not returned yet
}

// newPool makes a pool and starts its first thread, to see that it can.
func newPool(dev *device, fs *passthrough.FS, jail contain.Jail) (*pool, error) {
	p := &pool{dev: dev, fs: fs, jail: jail, failed: make(chan error, 1), kicks: [queueCount]int{-1, -1}, busy: map[uint64]int{}, parked: map[uint64][]*job{}}
	var err error
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make epoll set: %w", err)
	}
	if p.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, errors.Join(fmt.Errorf("make eventfd: %w", err), unix.Close(p.epoll))
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: stopEvent}
	if err = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, p.stop, &event); err == nil {
		err = p.first()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start serving threads: %w", err), p.close(time.Second))
	}
	return p, nil
}

// first starts a thread and waits until it is shut in.
func (p *pool) first() error {
	ready := make(chan error, 1)
	p.mu.Lock()
	p.count++
	p.mu.Unlock()
	p.start(ready)
	return <-ready
}

// start runs a thread, which was counted. ready, if not nil, learns whether it
// could be shut in.
func (p *pool) start(ready chan<- error) {
	p.threads.Add(1)
	child.OnOwnThread(func() {
		defer p.threads.Done()
		err := p.jail.Enter()
		if ready != nil {
			ready <- err
		}
		if err == nil {
			newWorker(p).run()
			return
		}
		p.mu.Lock()
		p.count--
		p.failLocked(err)
		p.mu.Unlock()
	})
}

// failLocked says that a thread cannot serve, and so that requests may stay
// unanswered: the device must end. mu is held.
func (p *pool) failLocked(err error) {
	select {
	case p.failed <- err:
	default: // the first reason is enough
	}
}

// wake sees to it that another thread looks at a queue. What it does costs
// less than to know whether it is needed.
func (p *pool) wake(queue int) {
	p.mu.Lock()
	if p.waiting == 0 {
		p.growLocked()
	} else if fd := p.kicks[queue]; fd >= 0 {
		notify(fd)
	}
	p.mu.Unlock()
}

// growLocked starts another thread, which looks at the queues first, unless
// there are enough. mu is held.
func (p *pool) growLocked() {
	if p.count < maxThreads && !p.closing {
		p.count++
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
	notify(fd) // for what came before
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

// notify adds one to an eventfd. A full counter is fine: it is readable.
func notify(fd int) {
	one := [8]byte{1}
	_, _ = unix.Write(fd, one[:])
}

// close ends the threads and waits for them, no longer than d. On an error some
// are left, and the pool's descriptors with them.
func (p *pool) close(d time.Duration) error {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	notify(p.stop)
	ended := make(chan struct{})
	go func() { p.threads.Wait(); close(ended) }()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ended:
		return errors.Join(unix.Close(p.epoll), unix.Close(p.stop))
	case <-timer.C:
		p.mu.Lock()
		defer p.mu.Unlock()
		return fmt.Errorf("end serving threads: %d still wait for a file system after %v", p.count, d)
	}
}
