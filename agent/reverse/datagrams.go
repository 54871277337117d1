package reverse

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/katabox/katabox/agent/api"
)

const (
	// maxQueries bounds the unanswered queries; more are dropped, as by a busy
	// server.
	maxQueries = 256
	// queryTimeout bounds the wait for the answer to a query. A resolver asks
	// again after 5 s (resolv.conf(5), RES_TIMEOUT).
	queryTimeout = 20 * time.Second
)

// serveDatagrams forwards datagrams to the host and the answers back, until the
// host closes its connection.
func serveDatagrams(ctx context.Context, host net.Conn, address string) error {
	at, err := loopback(address)
	if err != nil {
		return refuse(host, err)
	}
	socket, err := openUDP(ctx, at)
	if err != nil {
		return refuse(host, err)
	}
	defer socket.Close()
	if err := answer(host, ""); err != nil {
		return err
	}
	q := newQueries()
	var answers sync.WaitGroup
	defer answers.Wait()
	defer host.Close()
	var ended error
	answers.Go(func() {
		ended = q.passAnswers(socket, host)
		_ = socket.Close()
	})
	defer context.AfterFunc(ctx, func() { _ = socket.Close() })()
	err = q.passQueries(ctx, host, socket)
	_ = host.Close()
	answers.Wait()
	return errors.Join(err, ended)
}

// queries are the unanswered queries.
type queries struct {
	mu   sync.Mutex // guards what follows
	last uint32
	open map[uint32]query
}

// query has an unanswered query's sender and deadline.
type query struct {
	from    netip.AddrPort
	expires time.Time
}

func newQueries() *queries { return &queries{open: map[uint32]query{}} }

// add records a query; it returns false if there are too many.
func (q *queries) add(from netip.AddrPort, now time.Time) (id uint32, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.open) >= maxQueries {
		maps.DeleteFunc(q.open, func(_ uint32, old query) bool { return !now.Before(old.expires) })
	}
	if len(q.open) >= maxQueries {
		return 0, false
	}
	q.last++
	q.open[q.last] = query{from: from, expires: now.Add(queryTimeout)}
	return q.last, true
}

// take returns the address for an answer, once.
func (q *queries) take(id uint32) (netip.AddrPort, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	found, ok := q.open[id]
	delete(q.open, id)
	return found.from, ok
}

// passQueries ends when the socket or the host's connection is closed.
func (q *queries) passQueries(ctx context.Context, host net.Conn, socket *datagramSocket) error {
	buf := make([]byte, api.MaxDatagram+1)
	for {
		n, from, err := socket.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			pause(ctx, acceptPause)
			continue
		}
		if n == 0 || n > api.MaxDatagram {
			continue // not forwarded
		}
		id, ok := q.add(from, time.Now())
		if !ok {
			continue
		}
		if err := api.WriteDatagram(host, api.Datagram{ID: id, Data: buf[:n]}); err != nil {
			return err
		}
	}
}

// passAnswers ends when the host's connection does.
func (q *queries) passAnswers(socket *datagramSocket, host net.Conn) error {
	for {
		d, err := api.ReadDatagram(host)
		if err != nil {
			return err
		}
		if to, ok := q.take(d.ID); ok {
			socket.answer(d.Data, to) // it does not matter if the client is gone
		}
	}
}
