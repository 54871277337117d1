package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// block is how much is buffered in each direction, in bytes.
const block = 32 << 10

// times are how long a Join waits.
type times struct {
	// lastWords is how long a connection stays of which one side takes no more: bytes
	// that this side sent before may be in transit.
	lastWords time.Duration
	// watch is how often a side that no longer sends is checked.
	watch time.Duration
}

// usual are the times of Join.
var usual = times{lastWords: 5 * time.Second, watch: time.Second}

// HalfCloser is a connection whose writing half can be closed separately: a
// vsock, TCP or UNIX connection.
type HalfCloser interface {
	net.Conn
	CloseWrite() error
}

// errLost means that one of the connections is lost, or has had its time.
var errLost = errors.New("connection lost")

// Join passes bytes in both directions until both have ended, one of the
// connections is lost, or ctx is done. It closes both connections. It buffers one block
// in each direction.
//
//	open --- end of file --> half-closed --- end of file --> closed
//	  |                           |
//	  +-- reset, error, ctx ------+-----------------------> both reset
//
// A write that fails ends its direction alone: the other one has 5 s to pass what was
// sent before. That is how a server's answer arrives which closed before it read all of
// the request: Linux sends a reset then, not an end of file (tcp_close in
// net/ipv4/tcp.c). After that time both are reset.
//
// A half-close is passed on, and the other direction continues until its own end. So is a
// reset, to a connection that can be reset: that of TCP, or one that is made so by Mark.
func Join(ctx context.Context, a, b HalfCloser) error {
	return join(ctx, a, b, usual)
}

func join(ctx context.Context, a, b HalfCloser, t times) error {
	hangUp := sync.OnceFunc(func() {
		abort(a)
		abort(b)
	})
	stop := context.AfterFunc(ctx, hangUp)
	defer func() {
		if !stop() {
			hangUp() // it has begun: wait, because a plain close is not a reset
		}
		_, _ = a.Close(), b.Close()
	}()
	var errs [2]error
	copied := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
	direction := func(i int, to, from HalfCloser) {
		err := t.copyBytes(to, from)
		close(copied[i])
		if err == nil {
			passed := make(chan error, 1)
			go func() { passed <- t.passEnd(to, from) }()
			if err = watch(from, t.watch, copied[1-i]); err != nil {
				hangUp() // which ends passEnd
			}
			err = errors.Join(err, <-passed)
		}
		if errs[i] = err; errors.Is(err, errLost) {
			hangUp()
		}
	}
	var directions sync.WaitGroup
	directions.Go(func() { direction(0, b, a) })
	directions.Go(func() { direction(1, a, b) })
	directions.Wait()
	return errors.Join(errs[:]...)
}

// abort closes a connection so that its peer sees an error instead of an orderly
// end, if the connection supports that: TCP by a reset (socket(7), SO_LINGER), and one of
// Mark. A vsock connection alone does not: Linux sends a shutdown, which reads as an end
// of file (virtio_transport_close in net/vmw_vsock/virtio_transport_common.c). Nor does a
// UNIX connection.
func abort(conn net.Conn) {
	if tcp, ok := conn.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// watch returns when done is closed, or with errLost when the peer of a
// connection that has sent its end of file has closed it altogether. For a vsock
// and a UNIX connection that end reads as a half-close does, but then the peer
// accepts no more bytes either, and an empty write reports it
// (net/vmw_vsock/af_vsock.c, vsock_connectible_sendmsg, and net/unix/af_unix.c,
// unix_stream_sendmsg: EPIPE), as it reports a TCP connection's reset. Otherwise a side
// that ignores the end of its input would keep the connection forever. done is closed
// before our own sending half of conn is: from then on an empty write fails with EPIPE,
// too, and proves nothing.
func watch(conn net.Conn, interval time.Duration, done <-chan struct{}) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-tick.C:
		}
		_, err := conn.Write(nil)
		select {
		case <-done:
			return nil
		default:
		}
		if err != nil {
			return fmt.Errorf("peer is gone: %w: %w", errLost, err)
		}
	}
}

// copyBytes copies from one side until its end.
func (t times) copyBytes(to, from HalfCloser) error {
	buf := make([]byte, block)
	room, send := 0, func(b []byte) error {
		_, err := to.Write(b)
		return err
	}
	if m, ok := to.(*marked); ok {
		room, send = markSize, m.writeBlock
	}
	for {
		n, err := from.Read(buf[room:])
		if n > 0 {
			if err := send(buf[:room+n]); err != nil {
				return fmt.Errorf("write: %w", t.takesNoMore(to, from, err))
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read: %w: %w", errLost, err)
		}
	}
}

// passEnd passes the end of from on. It may wait, as a write does.
func (t times) passEnd(to, from HalfCloser) error {
	if err := to.CloseWrite(); err != nil {
		return fmt.Errorf("close half: %w", t.takesNoMore(to, from, err))
	}
	return nil
}

// takesNoMore gives the direction from to to from, which may wait in a write, the time of
// last words, because a write to to has failed with err. It returns err, which is a loss
// if this very time was over.
func (t times) takesNoMore(to, from HalfCloser, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	end := time.Now().Add(t.lastWords)
	_, _ = to.SetReadDeadline(end), from.SetWriteDeadline(end)
	return err
}
