package vsock

import (
	"net"
	"sync"
	"syscall"

	mdvsock "github.com/mdlayher/vsock"
)

// maxBacklog is how many connections of the guest wait to be accepted at one
// port; further ones are refused.
const maxBacklog = 128

// listener takes the guest's connections to one port of the host.
type listener struct {
	dev     *device
	port    uint32
	backlog chan *conn // filled with device.mu held
	closed  chan struct{}
	once    sync.Once
}

func (d *device) listen(port uint32) (net.Listener, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.err
	if err == nil && d.listeners[port] != nil {
		err = syscall.EADDRINUSE
	}
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: hostAddr(port), Err: err}
	}
	l := &listener{
		dev: d, port: port,
		backlog: make(chan *conn, maxBacklog),
		closed:  make(chan struct{}),
	}
	d.listeners[port] = l
	return l, nil
}

// Accept implements net.Listener. The connection is a Conn.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.closed:
		return nil, l.opError("accept", net.ErrClosed)
	case <-l.dev.done:
		return nil, l.opError("accept", l.dev.failure())
	}
}

// Close implements net.Listener. Connections not accepted yet are reset.
func (l *listener) Close() error {
	err := error(l.opError("close", net.ErrClosed))
	l.once.Do(func() {
		err = nil
		l.dev.mu.Lock()
		if l.dev.listeners[l.port] == l {
			delete(l.dev.listeners, l.port)
		}
		l.dev.mu.Unlock()
		close(l.closed)
		l.drain()
	})
	return err
}

// drain resets what nobody will accept; the backlog is no longer filled.
func (l *listener) drain() {
	for {
		select {
		case c := <-l.backlog:
			c.abort()
		default:
			l.dev.flush()
			return
		}
	}
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return hostAddr(l.port) }

func (l *listener) opError(op string, err error) *net.OpError {
	return &net.OpError{Op: op, Net: network, Addr: l.Addr(), Err: err}
}

// closeListeners ends all listeners of a device that has ended.
func (d *device) closeListeners() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.listeners)
}

// failure is why the device ended, nil while it has not.
func (d *device) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func hostAddr(port uint32) *mdvsock.Addr {
	return &mdvsock.Addr{ContextID: mdvsock.Host, Port: port}
}
