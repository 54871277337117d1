package stream

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
)

// park lets the reader stop when it has received as many bytes as the host has
// sent on all connections; if sent is nil, when no more arrive. The result is
// closed when the connection is; it is nil if there is none. On error nothing has
// changed.
func (in *input) park(sent *uint64) (<-chan struct{}, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch in.state {
	case bound:
	case parking:
		return in.run.done, nil
	case reserved:
		in.state = unbound
		return nil, nil
	default:
		return nil, nil
	}
	in.announced = sent != nil
	if sent != nil && *sent > in.received {
		if free := maxKept - len(in.queue) - in.hand; *sent-in.received > uint64(max(free, 0)) {
			return nil, fmt.Errorf("keep input: %d bytes are under way and there is space for %d: %w",
				*sent-in.received, max(free, 0), errdefs.ErrResourceExhausted)
		}
	}
	in.state, in.keep = parking, maxKept
	if in.counted = sent != nil; in.counted {
		in.target = *sent
	}
	in.interrupt()
	in.limit(in.run)
	in.changed.Broadcast()
	return in.run.done, nil
}

// release implements end. The reader stops when no more arrives, or has read up to
// maxKept more than is kept already: a process that does not read must not keep the
// host from binding its input again, and what the host has sent must not be lost.
func (in *input) release() <-chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case !in.replaceable:
		return nil
	case in.state == reserved:
		in.state = unbound
		return nil
	case in.state != bound && in.state != parking:
		return nil
	}
	in.state, in.counted, in.releasing = parking, false, true
	in.keep = len(in.queue) + in.hand + maxKept
	in.interrupt()
	in.limit(in.run)
	in.changed.Broadcast()
	return in.run.done
}

// unpark undoes park and returns an error that says what did not come; nil if the
// reader has all and stops.
func (in *input) unpark(cause error) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.state != parking || in.arrived() {
		return nil
	}
	if in.releasing {
		return fmt.Errorf("wait for input: another connection takes its place: %w", cause)
	}
	in.state = bound
	in.limit(in.run)
	in.changed.Broadcast()
	if !in.counted {
		return fmt.Errorf("wait for the end of the input that is under way, after %d bytes: %w", in.received, cause)
	}
	return fmt.Errorf("wait for input: %d of %d bytes have arrived: %w", in.received, in.target, cause)
}

// arrived reports whether all that Park waits for has been read. mu is held.
func (in *input) arrived() bool {
	return in.state == parking && in.counted && in.received >= in.target
}

// endsWith reports whether an error of the reader's is the end of the input, and
// not only of a connection that may be replaced. Such a connection is lost with the
// vsock device; once its successor is there, the host closes it, too. mu is held.
func (in *input) endsWith(err error) bool {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return false
	case errors.Is(err, io.EOF):
		return !in.releasing || !in.announced
	default:
		return !in.replaceable
	}
}
