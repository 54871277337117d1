package relay

// #include "relay.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Relay is one run of copying, which can be stopped.
type Relay struct {
	// Small is the number of bytes below which a read is followed by a Pause, so
	// that a process that writes little at a time does not cost a packet each.
	Small int
	Pause time.Duration
	// Idle is how long the run waits for input before it ends.
	Idle time.Duration

	stop *os.File // an eventfd
}

// New returns a Relay, which the caller must Close.
func New() (*Relay, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make eventfd: %w", err)
	}
	// A file that does not block would be known to Go's poller, and each Stop would
	// wake that, too. This one's writes do not block either: it counts to 2^64.
	return &Relay{stop: os.NewFile(uintptr(fd), "stop")}, nil
}

// Close frees what New has taken. No run may be in progress.
func (r *Relay) Close() error { return r.stop.Close() }

// Stop ends the run, also one that has not begun. It does not wait for that.
func (r *Relay) Stop() {
	_, _ = r.stop.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0}) // It fails only when it is closed.
}

// Run copies from a pipe to a socket, neither of which may block, until there is no
// input for a while, Stop is called, or either end fails or has ended. Which it is
// the caller sees when it uses them. Both stay open until Run returns, even if they
// are closed meanwhile, and their Close may wait for that: call Stop first.
//
// Run returns how many bytes it has read, and those at the end of them that it has
// not sent, which are a part of block.
func (r *Relay) Run(from, to syscall.Conn, block []byte) (read uint64, rest []byte, err error) {
	err = r.withEnds(from, to, func(plan *C.struct_relay_plan) {
		var result C.struct_relay_result
		plan.size = C.size_t(len(block))
		C.relay_run(plan, (*C.char)(unsafe.Pointer(unsafe.SliceData(block))), &result)
		read, rest = uint64(result.read), block[result.from:result.to]
	})
	return read, rest, err
}

// withEnds calls run with a plan for the two ends, which stay open meanwhile.
func (r *Relay) withEnds(from, to syscall.Conn, run func(*C.struct_relay_plan)) error {
	return withFD(from, func(in C.int) error {
		return withFD(to, func(out C.int) error {
			return withFD(r.stop, func(stop C.int) error {
				run(&C.struct_relay_plan{in: in, out: out, stop: stop, small: C.size_t(r.Small), pause: timespec(r.Pause), idle: timespec(r.Idle)})
				return nil
			})
		})
	})
}

func withFD(c syscall.Conn, f func(fd C.int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	err = raw.Control(func(fd uintptr) { ferr = f(C.int(fd)) })
	return errors.Join(err, ferr)
}

func timespec(d time.Duration) C.struct_timespec {
	t := unix.NsecToTimespec(d.Nanoseconds())
	return C.struct_timespec{tv_sec: C.time_t(t.Sec), tv_nsec: C.long(t.Nsec)}
}
