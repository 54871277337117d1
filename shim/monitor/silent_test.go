package monitor

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// memory is a listener for connections in memory.
type memory struct {
	conns  chan net.Conn
	close  sync.Once
	closed chan struct{}
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case conn := <-m.conns:
		return conn, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error {
	m.close.Do(func() { close(m.closed) })
	return nil
}

func (*memory) Addr() net.Addr { return &net.UnixAddr{} }

// A client that sends nothing, or no more, loses its connection.
func TestSilentClients(t *testing.T) {
	const request = "GET / HTTP/1.1\r\nHost: x\r\n"
	for what, sent := range map[string]string{
		"nothing": "", "a part of the headers": request, "a part of the body": request + "Content-Length: 9\r\n\r\n1", "one request": request + "\r\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &memory{conns: make(chan net.Conn), closed: make(chan struct{})}
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error)
			go func() { served <- New(t.TempDir()).Serve(ctx, l) }()
			near, far := net.Pipe()
			l.conns <- far
			began := time.Now()
			go func() { _, _ = io.WriteString(near, sent) }()
			_ = near.SetReadDeadline(began.Add(time.Hour))
			_, _ = io.Copy(io.Discard, near)
			if took := time.Since(began); took > idleTimeout+writeTimeout {
				t.Errorf("%s: the connection lasts %v", what, took)
			}
			_ = near.Close()
			cancel()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}
