package relay

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/relay/relaytest"
)

// tcpPair is a TCP connection.
func tcpPair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp4", localhost)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, conn := range []net.Conn{dialled, accepted} {
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(waitTime))
	}
	return dialled.(*net.TCPConn), accepted.(*net.TCPConn)
}

func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// writeUntilError writes to a connection whose peer ends, and returns its error.
func writeUntilError(conn io.Writer) error {
	for {
		if _, err := conn.Write([]byte("x")); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// A reset that a Write reports first is still no end of file to the reader, who gets
// what came before it.
func TestTCPResetDuringWrites(t *testing.T) {
	conn, peer := tcpPair(t)
	c := TCP(conn)
	write(t, peer, "last words")
	reset(peer)
	if err := writeUntilError(c); !errors.Is(err, unix.ECONNRESET) {
		t.Fatalf("write: %v, want that it has the error before the reader", err)
	}
	if got, err := io.ReadAll(c); string(got) != "last words" || !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("read %q, %v, want a reset after the last words", got, err)
	}
}

// A peer that no longer answers, which a Write reports first, is no end of file either.
func TestTCPTimeoutDuringAWrite(t *testing.T) {
	conn, peer := tcpPair(t)
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var optErr error
	err = raw.Control(func(fd uintptr) {
		optErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 100)
	})
	if err := errors.Join(err, optErr); err != nil {
		t.Fatal(err)
	}
	c := TCP(conn)
	write(t, peer, "last words")
	if _, err := c.Write(make([]byte, 64<<20)); !errors.Is(err, unix.ETIMEDOUT) { // more than the kernel buffers
		t.Fatalf("write: %v, want that it has the error before the reader", err)
	}
	if got, err := io.ReadAll(c); string(got) != "last words" || !errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("read %q, %v, want the loss after the last words", got, err)
	}
}

// A reset is no end of file when reader and writer get it concurrently.
func TestTCPResetDuringBoth(t *testing.T) {
	for range 100 {
		conn, peer := tcpPair(t)
		c := TCP(conn)
		wrote := make(chan error, 1)
		go func() {
			data := make([]byte, block)
			for {
				if _, err := c.Write(data); err != nil {
					wrote <- err
					return
				}
			}
		}()
		go func() {
			_, _ = io.CopyN(io.Discard, peer, 2*block)
			reset(peer)
		}()
		if n, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("read %d bytes, %v, want a reset", n, err)
		}
		<-wrote
		_ = conn.Close()
	}
}

// A reset after the peer's end of file leaves that end orderly.
func TestTCPResetAfterTheEnd(t *testing.T) {
	conn, peer := tcpPair(t)
	c := TCP(conn)
	write(t, peer, "all of it")
	_ = peer.CloseWrite()
	reset(peer)
	if err := writeUntilError(c); !errors.Is(err, unix.EPIPE) {
		t.Fatalf("write: %v", err)
	}
	relaytest.WantAll(t, c, "all of it")
}

// An end of file is passed on at once, although a Write waits.
func TestTCPEndDuringAWrite(t *testing.T) {
	conn, peer := tcpPair(t)
	c := TCP(conn)
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, 64<<20)) // more than the kernel buffers
		wrote <- err
	}()
	_, _ = io.CopyN(io.Discard, peer, 1)
	_ = peer.CloseWrite()
	relaytest.WantAll(t, c, "")
	reset(peer)
	if err := <-wrote; err == nil {
		t.Error("all was written")
	}
}

// Both have closed: the socket has ended, and so did the reading, orderly.
func TestTCPEndOfBoth(t *testing.T) {
	conn, peer := tcpPair(t)
	c := TCP(conn)
	_ = c.CloseWrite()
	relaytest.WantAll(t, peer, "")
	_ = peer.Close()
	relaytest.WantAll(t, c, "")
}
