package vsock

import (
	"context"
	"io"
	"net"

	mdvsock "github.com/mdlayher/vsock"
)

// track notes what Close has to end.
func (t *kernelTransport) track(c io.Closer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return net.ErrClosed
	}
	t.open[c] = struct{}{}
	return nil
}

func (t *kernelTransport) forget(c io.Closer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, c)
}

// keep makes a connection end with the transport.
func (t *kernelTransport) keep(c Conn) (Conn, error) {
	kc := &kernelConn{Conn: c, t: t}
	if err := t.track(kc); err != nil {
		_ = c.Close()
		return nil, err
	}
	return kc, nil
}

// kernelDial is a Dial in progress; closing it ends it.
type kernelDial struct{ cancel context.CancelFunc }

// Close implements io.Closer.
func (d *kernelDial) Close() error {
	d.cancel()
	return nil
}

// kernelConn is a connection that its transport knows.
type kernelConn struct {
	Conn
	t *kernelTransport
}

// Close implements net.Conn.
func (c *kernelConn) Close() error {
	c.t.forget(c)
	return c.Conn.Close()
}

// kernelListener takes connections of one guest only.
type kernelListener struct {
	net.Listener
	t *kernelTransport
}

// Accept implements net.Listener.
func (l *kernelListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, ok := c.RemoteAddr().(*mdvsock.Addr)
		conn, isConn := c.(Conn)
		if !ok || !isConn || peer.ContextID != l.t.cid {
			_ = c.Close() // another machine's
			continue
		}
		return l.t.keep(conn)
	}
}

// Close implements net.Listener.
func (l *kernelListener) Close() error {
	l.t.forget(l)
	return l.Listener.Close()
}
