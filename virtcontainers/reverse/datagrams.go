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
	// sendTimeout bounds sending an answer to a guest that does not read.
	sendTimeout = 10 * time.Second
	// maxIdle is how many idle sockets are kept for later queries.
	maxIdle = 16
)

// datagrams forwards queries, of one datagram each, from the guest to a server,
// and the answers back.
type datagrams struct {
	dial    func() (net.Conn, error)
	conn    guest.Conn
	slots   chan struct{} // holds one element for each query
	idle    chan net.Conn
	running sync.WaitGroup
	cancel  context.CancelFunc
	sending sync.Mutex // held while an answer is written to conn
}

// openDatagrams has the agent receive datagrams at address. dial returns a
// socket that is connected to the server; it must not block.
func openDatagrams(ctx context.Context, open Opener, address string, dial func() (net.Conn, error)) (*datagrams, error) {
	conn, err := open(ctx, &api.ReverseOpen{What: &api.ReverseOpen_Datagrams{Datagrams: address}})
	if err != nil {
		return nil, fmt.Errorf("receive datagrams in the guest: %w", err)
	}
	d := &datagrams{dial: dial, conn: conn, slots: make(chan struct{}, maxQueries), idle: make(chan net.Conn, maxIdle)}
	ctx, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	d.running.Go(func() {
		err := d.serve(ctx)
		if ctx.Err() == nil {
			log.G(ctx).WithError(err).Debug("no datagrams come from the guest any more")
		}
	})
	return d, nil
}

// Close ends it and waits. It may be called again.
func (d *datagrams) Close() error {
	d.cancel()
	err := d.conn.Close()
	d.running.Wait()
	for len(d.idle) > 0 {
		_ = (<-d.idle).Close()
	}
	if err != nil && !guest.Disconnected(err) {
		return fmt.Errorf("stop receiving datagrams in the guest: %w", err)
	}
	return nil
}

// serve reads queries until the agent's connection ends.
func (d *datagrams) serve(ctx context.Context) error {
	for {
		query, err := api.ReadDatagram(d.conn)
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
			if err := d.ask(ctx, query); err != nil && ctx.Err() == nil {
				log.G(ctx).WithError(err).Debug("a query from the guest has no answer")
			}
		})
	}
}

// ask sends one query and waits for its answer. The socket is reused only after
// an answer in time; otherwise a late answer could arrive for the next query.
func (d *datagrams) ask(ctx context.Context, query api.Datagram) error {
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
	return d.send(api.Datagram{ID: query.ID, Data: answer})
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

// send passes an answer on. A guest that does not read loses its connection,
// because a half-written answer cannot be taken back.
func (d *datagrams) send(answer api.Datagram) error {
	d.sending.Lock()
	defer d.sending.Unlock()
	err := d.conn.SetWriteDeadline(time.Now().Add(sendTimeout))
	if err == nil {
		err = api.WriteDatagram(d.conn, answer)
	}
	if err != nil {
		return errors.Join(err, d.conn.Close())
	}
	return nil
}
