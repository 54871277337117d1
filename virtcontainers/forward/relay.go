package forward

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/guest"
)

const (
	// bufferSize is the buffer of each direction of a connection, in bytes. A
	// slow reader slows the writer down, as without a relay.
	bufferSize = 32 << 10
	// drainTimeout bounds the wait for the guest's last output once it accepts
	// no more input: a server may answer and close before it has read
	// everything.
	drainTimeout = 5 * time.Second
)

// pair is a client's connection and the one made for it to the guest.
type pair struct {
	client *net.TCPConn
	far    guest.Conn
}

// relay copies both ways until both directions have ended, one of the
// connections breaks, or ctx ends. It closes both.
//
//	open --- end of file --> half-closed --- end of file --> closed
//	  |                           |
//	  +-- reset, error, ctx ------+-----------------------> both reset
//
// If the server in the guest resets its connection, that is an end of file here: the
// agent can only close the vsock connection, which the guest's kernel tells by a shutdown
// (virtio_transport_close in Linux's virtio_transport_common.c).
func relay(ctx context.Context, client *net.TCPConn, far guest.Conn) {
	p := &pair{client: client, far: far}
	aborted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(aborted)
		p.abort()
	})
	defer func() {
		if !stop() {
			<-aborted // abort has begun: wait for it
		}
	}()
	var both sync.WaitGroup
	both.Go(p.toGuest)
	both.Go(p.toClient)
	both.Wait()
	_ = far.Close()
	_ = client.Close()
}

// toGuest copies what the client sends, and then waits for the client's end: a
// dead client must not keep its slot while the guest sends nothing.
func (p *pair) toGuest() {
	err := transfer(p.far, p.client)
	if errors.Is(err, errWrite) {
		_ = p.far.SetReadDeadline(time.Now().Add(drainTimeout))
		return
	}
	if err == nil {
		// It fails when the guest has closed already; what it sent before
		// is still read.
		_ = p.far.CloseWrite()
		awaitEnd(p.client)
	}
	p.abort()
}

func (p *pair) toClient() {
	if transfer(p.client, p.far) != nil {
		p.abort()
		return
	}
	_ = p.client.CloseWrite()
}

// abort ends both connections immediately; the client sees a reset.
func (p *pair) abort() {
	reset(p.client)
	_ = p.far.Close()
}

// reset closes a connection so that its peer gets a RST: with SO_LINGER 0
// (socket(7)).
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// errWrite marks transfer's errors that come from the receiver.
var errWrite = errors.New("write")

// transfer copies until the end of file.
func transfer(to io.Writer, from io.Reader) error {
	buf := make([]byte, bufferSize)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return errors.Join(errWrite, err)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// tcpClose is TCP_CLOSE of Linux's include/net/tcp_states.h: the connection
// has ended.
const tcpClose = 7

// awaitEnd waits, after the client's end of file, until the client's socket
// has ended: both sides have closed and everything has arrived, or a reset
// came. A client that ended without either is found by keep-alive probes,
// which package net turns on.
func awaitEnd(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return // it was closed already
	}
	_ = raw.Read(func(fd uintptr) bool { // called again whenever the socket's state changes
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		return err != nil || info.State == tcpClose
	})
}
