package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/relay/relaytest"
)

// packetPair is a SOCK_SEQPACKET connection.
func packetPair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "packets")
		conn, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(waitTime))
		ends[i] = conn.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// Messages keep their boundaries across a connection that has none.
func TestPacketsKeepTheirBoundaries(t *testing.T) {
	client, near := packetPair(t)
	far, server := packetPair(t)
	left, right := relaytest.Pair(t, waitTime)
	ended := make(chan error, 2)
	go func() { ended <- Join(t.Context(), Packets(near), left) }()
	go func() { ended <- Join(t.Context(), right, Packets(far)) }()
	messages := [][]byte{[]byte("a"), bytes.Repeat([]byte("b"), 100_000), []byte("cd"), bytes.Repeat([]byte("e"), 3)}
	go func() {
		for _, m := range messages {
			_, _ = client.Write(m)
		}
		_ = client.CloseWrite()
	}()
	buf := make([]byte, MaxPacket)
	for _, want := range messages {
		n, err := server.Read(buf)
		if err != nil || !bytes.Equal(buf[:n], want) {
			t.Fatalf("read %d bytes, %v, want %d", n, err, len(want))
		}
	}
	if n, err := server.Read(buf); !errors.Is(err, io.EOF) {
		t.Errorf("after the half-close: %d bytes, %v", n, err)
	}
	write(t, server, "late answer")
	if n, err := client.Read(buf); err != nil || string(buf[:n]) != "late answer" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	_ = server.Close()
	if n, err := client.Read(buf); !errors.Is(err, io.EOF) {
		t.Errorf("after the close: %d bytes, %v", n, err)
	}
	for range 2 {
		<-ended
	}
}

// A peer that has closed is noticed without sending it a message.
func TestPacketsWatchThePeer(t *testing.T) {
	a, b := packetPair(t)
	p := Packets(a)
	if _, err := p.Write(nil); err != nil {
		t.Errorf("the peer is there: %v", err)
	}
	_ = b.SetReadDeadline(time.Now().Add(time.Millisecond))
	if n, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the peer was sent %d bytes, %v", n, err)
	}
	_ = b.Close()
	if _, err := p.Write(nil); !errors.Is(err, unix.EPIPE) {
		t.Errorf("the peer is gone: %v", err)
	}
}

// FuzzPackets writes what a peer may send; the messages that come out must be
// those that it announced.
func FuzzPackets(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02ab\x00\x00\x00\x01c"), uint8(3))
	f.Add([]byte("\x00\x00\x00\x00"), uint8(1))
	f.Add([]byte("\xff\xff\xff\xffx"), uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, step uint8) {
		if len(data) > 4096 {
			return
		}
		a, b := packetPair(t)
		defer a.Close()
		_ = b.SetDeadline(time.Now().Add(waitTime))
		p, rest := Packets(a), data
		for len(rest) > 0 {
			n := min(len(rest), int(step)+1)
			if _, err := p.Write(rest[:n]); err != nil {
				break
			}
			rest = rest[n:]
		}
		_ = a.Close()
		buf := make([]byte, MaxPacket)
		for {
			n, err := b.Read(buf)
			if err != nil {
				return
			}
			if len(data) < headerSize+n || int(binary.BigEndian.Uint32(data)) != n || !bytes.Equal(data[headerSize:headerSize+n], buf[:n]) {
				t.Fatalf("message %q of stream %q", buf[:n], data)
			}
			data = data[headerSize+n:]
		}
	})
}
