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

	mu       sync.Mutex // guards the deadline of writes, here and below
	deadline time.Time  // zero if there is none
}

// SetDeadline implements net.Conn.
func (r *retried) SetDeadline(t time.Time) error {
	return errors.Join(r.SetReadDeadline(t), r.SetWriteDeadline(t))
}

// SetWriteDeadline implements net.Conn.
func (r *retried) SetWriteDeadline(t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deadline = t
	return r.HalfCloser.SetWriteDeadline(t)
}

// Write implements net.Conn. A write of no bytes is tried once; another Write's try that
// has just ended is no error of it.
func (r *retried) Write(b []byte) (int, error) {
	if len(b) == 0 {
		_, err := r.HalfCloser.Write(nil)
		if errors.Is(err, os.ErrDeadlineExceeded) && !r.late() {
			err = nil
		}
		return 0, err
	}
	defer r.restore()
	written := 0
	for {
		if err := r.begin(); err != nil {
			return written, err
		}
		n, err := r.HalfCloser.Write(b[written:])
		written += n
		if !errors.Is(err, os.ErrDeadlineExceeded) || r.late() {
			return written, err
		}
	}
}

// begin sets the end of the next try.
func (r *retried) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := time.Now().Add(retryInterval)
	if !r.deadline.IsZero() && r.deadline.Before(end) {
		end = r.deadline
	}
	return r.HalfCloser.SetWriteDeadline(end)
}

// restore ends the tries: the deadline is the caller's again. If the connection is
// closed, it has none.
func (r *retried) restore() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.HalfCloser.SetWriteDeadline(r.deadline)
}

// late reports whether the deadline is over.
func (r *retried) late() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.deadline.IsZero() && !time.Now().Before(r.deadline)
}
