package vhostuser

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// vring is the server's side of a queue: what starts and stops it. Only the
// server's own goroutine uses it.
type vring struct {
	queue *Queue
	dev   Device
	// kick is the eventfd for the driver's notifications, nil for none; raw is
	// it for a KickWaiter, -1 for none: an os.File would also be in the
	// runtime's epoll set, and every notification would wake another thread.
	kick    *os.File
	raw     int
	enabled bool
	base    uint16
	done    chan struct{} // closed at the end of the kick loop; nil when stopped
}

// setKick takes over fd, -1 for none. The queue does not run afterwards.
func (v *vring) setKick(fd int) error {
	v.stop()
	v.dropKick()
	if fd < 0 {
		return nil
	}
	if err := takeEventfd(fd); err != nil {
		return fmt.Errorf("set kick of queue %d: %w", v.queue.index, err)
	}
	if _, ok := v.dev.(KickWaiter); ok {
		v.raw = fd
		return nil
	}
	kick := os.NewFile(uintptr(fd), "kick")
	if err := kick.SetReadDeadline(time.Time{}); err != nil {
		return errors.Join(fmt.Errorf("poll kick of queue %d: %w", v.queue.index, err), kick.Close())
	}
	v.kick = kick
	return nil
}

// dropKick closes the eventfd.
func (v *vring) dropKick() {
	if v.kick != nil {
		_ = v.kick.Close()
		v.kick = nil
	}
	if v.raw >= 0 {
		_ = unix.Close(v.raw)
		v.raw = -1
	}
}

// wanted reports whether the front end wants the queue to run.
func (v *vring) wanted() bool { return v.enabled && (v.kick != nil || v.raw >= 0) }

// update starts or stops the queue according to its state.
func (v *vring) update() error {
	switch {
	case v.wanted() && v.done == nil:
		return v.start()
	case !v.wanted():
		v.stop()
	}
	return nil
}

func (v *vring) start() error {
	if err := v.queue.start(v.base); err != nil {
		return err
	}
	v.done = make(chan struct{})
	if own, ok := v.dev.(KickWaiter); ok {
		close(v.done) // there is no loop
		return v.watch(own)
	}
	go v.loop(v.kick, v.done)
	return nil
}

// watch passes the kick to a KickWaiter.
func (v *vring) watch(own KickWaiter) error {
	if err := own.Watch(v.queue, v.raw); err != nil {
		return fmt.Errorf("watch kick of queue %d: %w", v.queue.index, err)
	}
	return nil
}

// loop calls the device once at the start, because the driver may have been
// first, and then after each kick. It ends when the file is closed or its read
// deadline passes. Nothing reads the eventfd, which could wait (call.go): the
// runtime's epoll set is edge-triggered, and each write to it is an event.
func (v *vring) loop(kick *os.File, done chan<- struct{}) {
	defer close(done)
	raw, err := kick.SyscallConn()
	if err != nil {
		return
	}
	// Read calls the function and waits for an event, until it returns true.
	_ = raw.Read(func(uintptr) bool {
		v.dev.Kicked(v.queue)
		return false
	})
}

// stop stops the queue, if it runs, and tells the device.
func (v *vring) stop() {
	if v.halt() {
		v.dev.Stopped(v.queue)
	}
}

// halt ends the kick loop and waits for it. The kick file stays, so that a
// queue that is only disabled can go on. It returns false if there was no loop.
func (v *vring) halt() bool {
	if v.done == nil {
		return false
	}
	if own, ok := v.dev.(KickWaiter); ok {
		own.Unwatch(v.queue)
		v.base, v.done = v.queue.stop(), nil
		return true
	}
	_ = v.kick.SetReadDeadline(time.Unix(1, 0))
	v.base = v.queue.stop()
	<-v.done
	v.done = nil
	_ = v.kick.SetReadDeadline(time.Time{})
	return true
}

// close releases everything without telling the device, for which Serve's
// return is the end. The queue can be given to another vring.
func (v *vring) close() {
	v.halt()
	v.dropKick()
	v.queue.setCall(-1)
	_ = v.queue.setMemory(nil)
}
