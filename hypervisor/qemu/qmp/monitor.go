package qmp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Monitor is one QMP connection. Its methods may be called from several
// goroutines; concurrent commands wait for each other only while they are
// written.
type Monitor struct {
	conn    net.Conn
	writer  chan struct{} // capacity 1: holds a token unless a command is being written
	hub     *hub
	greeted chan struct{} // closed when version is set
	done    chan struct{} // closed when the reader has ended

	mu      sync.Mutex
	version Version
	nextID  uint64
	waiting map[uint64]chan<- *reply // by command id
	reading bool
	err     error // why the monitor is closed
}

// New makes a Monitor for a connection to QEMU, from which nothing was read
// yet; the Monitor owns it. A *net.UnixConn is needed to pass files.
func New(conn net.Conn) *Monitor {
	m := &Monitor{
		conn:    conn,
		writer:  make(chan struct{}, 1),
		hub:     newHub(),
		greeted: make(chan struct{}),
		done:    make(chan struct{}),
		waiting: make(map[uint64]chan<- *reply),
	}
	m.writer <- struct{}{}
	return m
}

// Handshake waits for QEMU's greeting and enters command mode. It must be
// called once, before any command. QEMU answers when the machine is complete:
// an error in QEMU's arguments shows as ErrClosed here.
func (m *Monitor) Handshake(ctx context.Context) error {
	if err := m.startReader(); err != nil {
		return fmt.Errorf("start handshake: %w", err)
	}
	select {
	case <-m.greeted:
	case <-m.done:
		return fmt.Errorf("wait for greeting: %w", m.Err())
	case <-ctx.Done():
		return fmt.Errorf("wait for greeting: %w", context.Cause(ctx))
	}
	return m.Execute(ctx, "qmp_capabilities", nil, nil)
}

// Disconnect closes the connection and waits until the reader has ended.
// Commands that wait fail with ErrClosed. It may be called several times.
func (m *Monitor) Disconnect() error {
	m.fail(errors.New("disconnected"))
	err := m.conn.Close()
	m.mu.Lock()
	reading := m.reading
	m.reading = true // prevents starting a reader
	m.mu.Unlock()
	if !reading {
		m.shut()
	}
	<-m.done
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Done is closed when the monitor is closed.
func (m *Monitor) Done() <-chan struct{} { return m.done }

// Err is nil while the monitor is open and an ErrClosed with its cause after.
func (m *Monitor) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Version is QEMU's version; zero before Handshake.
func (m *Monitor) Version() Version {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.version
}

// Subscribe streams the events from now on; the first caller also gets those
// from before. The stream ends when ctx ends or the monitor is closed, or when
// the caller leaves more than MaxQueuedEvents waiting.
func (m *Monitor) Subscribe(ctx context.Context) *Subscription {
	return m.hub.subscribe(ctx)
}

func (m *Monitor) startReader() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reading {
		return errors.New("the monitor was connected before")
	}
	m.reading = true
	go m.read()
	return nil
}

// read is the body of the reader goroutine.
func (m *Monitor) read() {
	defer m.shut()
	lines := newLineReader(m.conn, MaxMessage)
	for {
		line, err := lines.next()
		if err == nil {
			err = m.handle(line)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("end of file")
			}
			m.fail(err)
			return
		}
	}
}

// shut reports the end to all waiters.
func (m *Monitor) shut() {
	_ = m.conn.Close()
	close(m.done)
	m.hub.close()
}

// fail records the first cause of the end.
func (m *Monitor) fail(cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = &closedError{cause: cause}
	}
}

// handle handles one message. It never blocks.
func (m *Monitor) handle(line []byte) error {
	msg, err := decode(line)
	switch {
	case err != nil:
		return err
	case msg.event != nil:
		m.hub.publish(*msg.event, len(line))
	case msg.reply != nil:
		m.deliver(msg.reply)
	default:
		return m.greet(msg.greeting)
	}
	return nil
}

func (m *Monitor) greet(g *greeting) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.greeted:
		return errors.New("unexpected second greeting")
	default:
	}
	m.version = g.Version
	close(m.greeted)
	return nil
}

// deliver passes a reply to its command. A reply without a waiter is dropped.
func (m *Monitor) deliver(r *reply) {
	m.mu.Lock()
	ch := m.waiting[r.id]
	delete(m.waiting, r.id)
	m.mu.Unlock()
	if ch != nil {
		ch <- r // capacity 1, and the only reply of this id
	}
}
