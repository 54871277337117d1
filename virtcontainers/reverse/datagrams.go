package reverse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guest"
)

const (
	// maxQueries bounds the unanswered queries; more are dropped, as by a busy
	// server.
	maxQueries = 256
	// answerTimeout bounds the wait for an answer: longer than a resolver waits
	// before it asks again (5 s, resolv.conf(5)).
	answerTimeout = 15 * time.Second
	// reopenPause is the time between a connection's end and the next one.
	reopenPause = time.Second
	// maxIdle is how many idle sockets are kept for later queries.
	maxIdle = 16
)

// datagrams forwards queries, of one datagram each, from the guest to a server,
// and the answers back.
type datagrams struct {
	// open makes a connection on which the agent sends queries.
	open    func(ctx context.Context) (guest.Conn, error)
	dial    func() (net.Conn, error)
	slots   chan struct{} // holds one element for each query
	idle    chan net.Conn
	running sync.WaitGroup
	cancel  context.CancelFunc
	sending sync.Mutex // held while an answer is written

	mu sync.Mutex // guards what follows
	// conn is the newest connection; none follows when closed is set.
	conn   guest.Conn
	closed bool
}

// openDatagrams has the agent receive datagrams at address. dial returns a
// socket that is connected to the server; it must not block.
func openDatagrams(ctx context.Context, open Opener, address string, dial func() (net.Conn, error)) (*datagrams, error) {
	d := &datagrams{dial: dial, slots: make(chan struct{}, maxQueries), idle: make(chan net.Conn, maxIdle)}
	d.open = func(ctx context.Context) (guest.Conn, error) {
		conn, err := open(ctx, &api.ReverseOpen{What: &api.ReverseOpen_Datagrams{Datagrams: address}})
		if err != nil {
			return nil, fmt.Errorf("receive datagrams in the guest: %w", err)
		}
		return conn, nil
	}
	conn, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	d.conn = conn
	ctx, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	d.running.Go(func() { d.run(ctx, conn) })
	return d, nil
}

// run serves one connection after another until Close.
func (d *datagrams) run(ctx context.Context, conn guest.Conn) {
	for {
		if conn != nil {
			err := d.serve(ctx, conn)
			_ = conn.Close()
			if ctx.Err() == nil {
				log.G(ctx).WithError(err).Debug("no datagrams come from the guest on this connection any more")
			}
		}
		select {
		case <-time.After(reopenPause):
		case <-ctx.Done():
			return
		}
		var err error
		if conn, err = d.reopen(ctx); err != nil && ctx.Err() == nil {
			log.G(ctx).WithError(err).Debug("datagrams from the guest have no connection")
		}
	}
}

// reopen makes the next connection, unless Close was called.
func (d *datagrams) reopen(ctx context.Context) (guest.Conn, error) {
	bounded, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := d.open(bounded)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errors.Join(context.Cause(ctx), conn.Close())
	}
	d.conn = conn
	return conn, nil
}

// Close ends it and waits. It may be called again.
func (d *datagrams) Close() error {
	d.cancel()
	err := d.closeConn()
	d.running.Wait()
	for len(d.idle) > 0 {
		_ = (<-d.idle).Close()
	}
	if err != nil && !guest.Disconnected(err) {
		return fmt.Errorf("stop receiving datagrams in the guest: %w", err)
	}
	return nil
}

func (d *datagrams) closeConn() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return d.conn.Close()
}

// serve reads queries until the agent's connection ends.
func (d *datagrams) serve(ctx context.Context, conn guest.Conn) error {
	for {
		query, err := api.ReadDatagram(conn)
		if err != nil {
			return err
		}
		select {
		case d.slots <- struct{}{}:
		default:
			continue
		}
		d.running.Go(func() {
			defer func() { <-d.slots }()
			if err := d.ask(ctx, conn, query); err != nil && ctx.Err() == nil {
				log.G(ctx).WithError(err).Debug("a query from the guest has no answer")
			}
		})
	}
}

// ask sends one query and waits for its answer. The socket is reused only after
// an answer in time; otherwise a late answer could arrive for the next query. The
// answer goes to the query's connection: another one has the same ids.
func (d *datagrams) ask(ctx context.Context, conn guest.Conn, query api.Datagram) error {
	socket, err := d.socket()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = socket.SetDeadline(time.Unix(1, 0)) })()
	answer, err := exchange(socket, query.Data)
	if err != nil {
		return errors.Join(err, socket.Close())
	}
	select {
	case d.idle <- socket:
	default:
		_ = socket.Close()
	}
	return d.send(conn, api.Datagram{ID: query.ID, Data: answer})
}

// socket returns an idle socket or a new one.
func (d *datagrams) socket() (net.Conn, error) {
	select {
	case socket := <-d.idle:
		return socket, nil
	default:
		return d.dial()
	}
}

func exchange(socket net.Conn, query []byte) ([]byte, error) {
	if err := socket.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return nil, err
	}
	if _, err := socket.Write(query); err != nil {
		return nil, fmt.Errorf("ask: %w", err)
	}
	buf := make([]byte, api.MaxDatagram+1)
	n, err := socket.Read(buf)
	if err != nil {
		return nil, fmt.Errorf("wait for answer: %w", err)
	}
	if n == 0 || n > api.MaxDatagram {
		return nil, fmt.Errorf("answer: it has %d bytes or more, want 1 to %d: %w", n, api.MaxDatagram, io.ErrShortBuffer)
	}
	return buf[:n], nil
}

// send passes an answer on, when the guest reads it. A guest that does not run reads
// none, and is not woken by an answer. Queries whose answers wait keep their slots.
func (d *datagrams) send(conn guest.Conn, answer api.Datagram) error {
	d.sending.Lock()
	defer d.sending.Unlock()
	if err := api.WriteDatagram(conn, answer); err != nil {
		// A half-written answer cannot be taken back.
		return errors.Join(err, conn.Close())
	}
	return nil
}
