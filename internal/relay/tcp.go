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

// TCP returns conn with every loss an error of Read, never an end of file: a reset, and a
// peer that no longer answers. The kernel reports a loss once: if a Write got the error,
// the socket's next read is an end of file (sk_stream_error in net/core/stream.c and
// tcp_recvmsg_locked in net/ipv4/tcp.c of Linux). TCP owns conn.
func TCP(conn *net.TCPConn) HalfCloser { return &tcp{HalfCloser: conn, conn: conn} }

// tcp hides the methods of a net.TCPConn by which io.Copy would bypass Read and
// Write. It has one reader at a time.
type tcp struct {
	HalfCloser
	conn *net.TCPConn

	writing sync.Mutex // held during a Write; guards what follows
	// lost is the error of the loss that a Write got, nil if none did: ECONNRESET, or after
	// a timeout ETIMEDOUT or the error of an ICMP message (tcp_write_err in
	// net/ipv4/tcp_timer.c). A reset after the peer's end of file is EPIPE (tcp_reset in
	// net/ipv4/tcp_input.c), which is no loss.
	lost error
}

// SetLinger is net.TCPConn's.
func (c *tcp) SetLinger(sec int) error { return c.conn.SetLinger(sec) }

// Read implements net.Conn.
func (c *tcp) Read(b []byte) (int, error) {
	n, err := c.conn.Read(b)
	if errors.Is(err, io.EOF) {
		if lost := c.loss(); lost != nil {
			return n, fmt.Errorf("read: a write has found the connection lost: %w", lost)
		}
	}
	return n, err
}

// loss returns the error of the loss that the end of file that was just read is; nil if
// it is orderly. If it is a loss, the socket's state is TCP_CLOSE: then no Write waits,
// and one that has the error returns.
func (c *tcp) loss() error {
	if !c.dead() {
		return nil
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.lost
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
	if code := unix.Errno(0); c.lost == nil && errors.As(err, &code) && code != unix.EPIPE {
		c.lost = code
	}
	return n, err
}
