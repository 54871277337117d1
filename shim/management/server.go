package management

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containerd/log"
)

// SocketName is the name of the socket in the directory of the sandbox's record,
// as in Kata Containers.
const SocketName = "shim-monitor.sock"

const (
	// maxConnections bounds the connections to one sandbox at a time, and maxLong
	// those beside them that last: clients that follow the log, and consoles.
	maxConnections = 8
	maxLong        = 32
	// requestTimeout bounds the reading of a request, and writeTimeout the
	// writing of its answer.
	requestTimeout = 5 * time.Second
	writeTimeout   = 10 * time.Second
	// maxDropped bounds what is read of a request after it was refused, in bytes,
	// in requestTimeout.
	maxDropped = 64 << 20
	// acceptPause is the pause before the next attempt when no descriptor is
	// left.
	acceptPause = 100 * time.Millisecond
)

// Server answers requests about one sandbox.
type Server struct {
	handlers map[string]handler
	listener *net.UnixListener
	// slots and long have one element for each connection that has a place there.
	slots, long chan struct{}
	running     sync.WaitGroup
	cancel      context.CancelFunc
}

// Listen makes the socket in dir, which only root may be able to enter, and
// begins to serve. ctx's values are kept for logs; when ctx ends, so do answers
// in progress.
func Listen(ctx context.Context, dir string, source Source) (*Server, error) {
	path := filepath.Join(dir, SocketName)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make management socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("make management socket: %w", err), l.Close())
	}
	s := &Server{handlers: handlers(source), listener: l, slots: make(chan struct{}, maxConnections), long: make(chan struct{}, maxLong)}
	ctx, s.cancel = context.WithCancel(ctx)
	s.running.Go(func() { s.serve(ctx) })
	return s, nil
}

// Close removes the socket, ends every connection and waits for them. It may be
// called again.
func (s *Server) Close() error {
	s.cancel()
	err := s.listener.Close() // removes the file
	s.running.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close management socket: %w", err)
	}
	return nil
}

// serve accepts connections until the listener is closed.
func (s *Server) serve(ctx context.Context) {
	for {
		conn, err := s.listener.AcceptUnix()
		switch {
		case err == nil:
			s.take(ctx, conn)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			log.G(ctx).WithError(err).Debug("could not accept a connection to the management socket")
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
		}
	}
}

// take answers one connection, unless there are too many connections.
func (s *Server) take(ctx context.Context, conn *net.UnixConn) {
	select {
	case s.slots <- struct{}{}:
	default:
		_ = conn.Close()
		return
	}
	s.running.Go(func() {
		at := &place{s.slots}
		defer at.leave()
		defer conn.Close()
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		defer stop()
		if err := s.answer(ctx, conn, at); err != nil {
			log.G(ctx).WithError(err).Debug("a request on the management socket failed")
		}
	})
}

// place is a connection's place among those that are served.
type place struct{ in chan struct{} }

// move moves the connection to others, and returns false if there is no place.
func (p *place) move(to chan struct{}) bool {
	select {
	case to <- struct{}{}:
		p.leave()
		p.in = to
		return true
	default:
		return false
	}
}

func (p *place) leave() { <-p.in }

// answer reads one request and answers it. A long request releases its place among
// the short ones.
func (s *Server) answer(ctx context.Context, conn *net.UnixConn, at *place) error {
	if err := conn.SetReadDeadline(time.Now().Add(requestTimeout)); err != nil {
		return err
	}
	r, err := readRequest(conn, s.maxBody)
	if err != nil {
		return errors.Join(err, refuse(conn, err))
	}
	h, ok := s.find(r)
	switch {
	case !ok:
		return write(conn, fail(404, fmt.Sprintf("there is nothing at %s", r.path)))
	case r.method != h.wants():
		return write(conn, fail(405, fmt.Sprintf("only %s is answered at %s", h.methods(), r.path)))
	case h.lasts(r) && !at.move(s.long):
		return write(conn, fail(503, fmt.Sprintf("%d clients follow the pod's log or have consoles open: try again when one has ended", maxLong)))
	case h.upgrade != nil:
		return upgrade(ctx, conn, r, h)
	}
	answerCtx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	return write(conn, h.answer(answerCtx, r))
}

// refuse answers a request that has not been read to its end. Of one that is too
// long it drops the rest: closing the connection would make the client's write
// fail, and some clients read the answer only after they have sent everything.
func refuse(conn *net.UnixConn, why error) error {
	if !errors.Is(why, errTooLong) {
		return write(conn, fail(400, why.Error()))
	}
	err := write(conn, fail(413, why.Error()))
	if err == nil {
		err = errors.Join(conn.CloseWrite(), conn.SetReadDeadline(time.Now().Add(requestTimeout)))
	}
	if err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(conn, maxDropped))
	}
	return err
}

// maxBody returns how many bytes the body of a request may have.
func (s *Server) maxBody(r *request) int {
	h, _ := s.find(r)
	return cmp.Or(h.maxBody, maxBody)
}

// find returns the handler for a path, and of several the one for the method. A
// handler whose path ends with a slash also handles every path below it.
func (s *Server) find(r *request) (handler, bool) {
	if h, ok := s.handlers[r.path]; ok {
		if h.also != nil && h.also.wants() == r.method {
			h = *h.also
		}
		return h, true
	}
	for path, h := range s.handlers {
		if strings.HasSuffix(path, "/") && strings.HasPrefix(r.path, path) {
			return h, true
		}
	}
	return handler{}, false
}

func write(conn *net.UnixConn, r response) error {
	if err := conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	buffers := net.Buffers{r.head(), r.body}
	_, err := buffers.WriteTo(conn)
	return err
}
