package relay

import (
	"errors"
	"os"
	"sync"
	"time"
)

// retryInterval is how often a Write that waits is tried again.
const retryInterval = time.Second

// retried tries a Write that waits again and again, until its deadline. The kernel does
// not wake the writer of a vsock connection whose peer has closed while there is
// something to read: vsock_poll in net/vmw_vsock/af_vsock.c of Linux reports neither
// EPOLLOUT nor EPOLLHUP then. The next try fails with EPIPE (vsock_connectible_sendmsg).
type retried struct {
	HalfCloser

	mu       sync.Mutex // guards the deadline of HalfCloser's writes, and what follows
	deadline time.Time  // the caller's; zero if there is none
	until    time.Time  // the end of the present try; zero if none was set
}

// SetDeadline implements net.Conn.
func (r *retried) SetDeadline(t time.Time) error {
	return errors.Join(r.SetReadDeadline(t), r.SetWriteDeadline(t))
}

// SetWriteDeadline implements net.Conn.
func (r *retried) SetWriteDeadline(t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deadline, r.until = t, time.Time{}
	return r.HalfCloser.SetWriteDeadline(t)
}

// Write implements net.Conn. A write of no bytes is no error if only its tries have ended:
// another Write waits.
func (r *retried) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, r.check()
	}
	written := 0
	for {
		if err := r.begin(); err != nil {
			return written, err
		}
		n, err := r.HalfCloser.Write(b[written:])
		written += n
		if !r.again(err) {
			return written, err
		}
	}
}

// check writes no bytes. The first try may fail because an earlier Write's tries have
// ended, the second because another Write's end while check waits for it.
func (r *retried) check() error {
	for range 2 {
		_, err := r.HalfCloser.Write(nil)
		if !r.again(err) {
			return err
		}
		if err := r.begin(); err != nil {
			return err
		}
	}
	return nil
}

// begin sets the end of a try, unless the present one is far enough: setting it may cost
// a system call.
func (r *retried) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.until.Sub(now) > retryInterval/2 {
		return nil
	}
	r.until = now.Add(retryInterval)
	if !r.deadline.IsZero() && r.deadline.Before(r.until) {
		r.until = r.deadline
	}
	return r.HalfCloser.SetWriteDeadline(r.until)
}

// again reports whether a write that ended with err is to be tried again.
func (r *retried) again(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) && !r.late()
}

// late reports whether the deadline is over.
func (r *retried) late() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.deadline.IsZero() && !time.Now().Before(r.deadline)
}
