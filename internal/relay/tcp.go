package relay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// tcpClose is TCP_CLOSE of Linux's include/net/tcp_states.h: the connection has
// ended in both directions.
const tcpClose = 7

// TCP returns conn with every reset an error of Read, never an end of file. The kernel
// reports a reset once: if a Write got the error, the socket's next read is an end of
// file (sk_stream_error in net/core/stream.c and tcp_recvmsg_locked in net/ipv4/tcp.c
// of Linux). TCP owns conn.
func TCP(conn *net.TCPConn) HalfCloser { return &tcp{HalfCloser: conn, conn: conn} }

// tcp hides the methods of a net.TCPConn by which io.Copy would bypass Read and
// Write. It has one reader at a time.
type tcp struct {
	HalfCloser
	conn *net.TCPConn

	writing sync.Mutex // held during a Write; guards what follows
	// reset is set when a Write got the error of a reset that came before the
	// peer's end of file. After that end the error is EPIPE (tcp_reset in
	// net/ipv4/tcp_input.c).
	reset bool
}

// SetLinger is net.TCPConn's.
func (c *tcp) SetLinger(sec int) error { return c.conn.SetLinger(sec) }

// Read implements net.Conn.
func (c *tcp) Read(b []byte) (int, error) {
	n, err := c.conn.Read(b)
	if errors.Is(err, io.EOF) && c.wasReset() {
		return n, fmt.Errorf("read: %w", unix.ECONNRESET)
	}
	return n, err
}

// wasReset reports whether the end of file that was just read is a reset. If so, the
// socket's state is TCP_CLOSE: then no Write waits, and one that has the error
// returns.
func (c *tcp) wasReset() bool {
	if !c.dead() {
		return false
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.reset
}

func (c *tcp) dead() bool {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return false
	}
	dead := false
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		dead = err == nil && info.State == tcpClose
	})
	return err == nil && dead
}

// Write implements net.Conn.
func (c *tcp) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err := c.conn.Write(b)
	c.reset = c.reset || errors.Is(err, unix.ECONNRESET)
	return n, err
}
