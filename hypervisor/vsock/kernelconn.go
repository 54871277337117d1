package vsock

import (
	"context"
	"io"
	"net"
)

// track registers what Close must end.
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

// kernelConn is a connection that its transport tracks.
type kernelConn struct {
	Conn
	t *kernelTransport
}

// Close implements net.Conn.
func (c *kernelConn) Close() error {
	c.t.forget(c)
	return c.Conn.Close()
}
