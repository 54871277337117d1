package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/relay/relaytest"
)

// chain carries a TCP connection over one that cannot be reset, as a port-forward
// does: from client to server, over the host's and the guest's half, each of which is
// joined by its own Join. cut ends the connection in between.
func chain(t *testing.T) (client, server *net.TCPConn, cut func()) {
	t.Helper()
	return chainFor(t, times{lastWords: usual.lastWords, watch: time.Millisecond})
}

// chainFor is chain with these times.
func chainFor(t *testing.T, wait times) (client, server *net.TCPConn, cut func()) {
	t.Helper()
	client, accepted := tcpPair(t)
	dialled, server := tcpPair(t)
	host, guest := relaytest.Pair(t, waitTime)
	ended := make(chan struct{}, 2)
	go func() {
		_ = join(t.Context(), TCP(accepted), Mark(host), wait)
		ended <- struct{}{}
	}()
	go func() {
		_ = join(t.Context(), Mark(guest), TCP(dialled), wait)
		ended <- struct{}{}
	}()
	t.Cleanup(func() {
		_, _ = client.Close(), server.Close()
		for range 2 {
			<-ended
		}
	})
	return client, server, func() { _ = guest.Close() }
}

// read reads one message.
func read(t *testing.T, conn io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Errorf("read %q, %v, want %q", got, err, want)
	}
}

func wantReset(t *testing.T, who string, conn io.Reader) {
	t.Helper()
	if got, err := io.ReadAll(conn); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("%s read %d bytes, %v, want a reset", who, len(got), err)
	}
}

// A reset by either end is a reset to the other, after what was sent before.
func TestChainReset(t *testing.T) {
	for _, by := range []string{"client", "server"} {
		one, other, _ := chain(t)
		if by == "server" {
			one, other = other, one
		}
		write(t, one, "part")
		read(t, other, "part")
		reset(one)
		wantReset(t, "the other than the "+by, other)
	}
}

// An end that is half-closed waits for the answer, which is cut short.
func TestChainResetOfTheAnswer(t *testing.T) {
	client, server, _ := chain(t)
	write(t, client, "request")
	_ = client.CloseWrite()
	relaytest.WantAll(t, server, "request")
	write(t, server, "half an ans")
	read(t, client, "half an ans")
	reset(server)
	wantReset(t, "client", client)
}

// A server that dies while it is sent something: the relay's write sees it first.
func TestChainResetOfAnUpload(t *testing.T) {
	for range 20 {
		conn, server, _ := chain(t)
		client := TCP(conn) // its Write may be the first to get the error
		go func() {
			data := make([]byte, 1<<20)
			for {
				if _, err := client.Write(data); err != nil {
					return
				}
			}
		}()
		_, _ = io.CopyN(io.Discard, server, 1<<20)
		reset(server)
		wantReset(t, "client", client)
	}
}

// A client that dies while both send and neither reads: all writes wait.
func TestChainResetOfBoth(t *testing.T) {
	client, server, _ := chainFor(t, quick)
	var sent atomic.Int64
	fill := func(conn *net.TCPConn, ended chan<- error) {
		data := make([]byte, block)
		for {
			n, err := conn.Write(data)
			if sent.Add(int64(n)); err != nil {
				ended <- err
				return
			}
		}
	}
	ended := [2]chan error{make(chan error, 1), make(chan error, 1)}
	go fill(client, ended[0])
	go fill(server, ended[1])
	for before := int64(-1); sent.Load() != before; time.Sleep(200 * time.Millisecond) {
		before = sent.Load()
	}
	reset(client)
	<-ended[0]
	if err := <-ended[1]; !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the server writes: %v, want a reset", err)
	}
}

// A client that dies while its own end cannot be passed on for want of room, and while
// the far side is silent or sends more than the client takes.
func TestResetWhileTheEndWaits(t *testing.T) {
	for _, silent := range []bool{true, false} {
		client, accepted := tcpPair(t)
		host, far := net.Pipe() // has no room: each write waits for its reader
		guest := Mark(halfPipe{far})
		_ = guest.SetDeadline(time.Now().Add(waitTime))
		ended, filled := make(chan error, 1), make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), waitTime)
		go func() { ended <- join(ctx, TCP(accepted), Mark(halfPipe{host}), quick) }()
		write(t, client, "x")
		_ = client.CloseWrite()
		read(t, guest, "x")
		if silent {
			filled <- nil
		} else {
			go func() { _, err := guest.Write(make([]byte, 64<<20)); filled <- err }() // more than the kernel buffers
		}
		time.Sleep(50 * time.Millisecond) // until the end waits, most of the time
		reset(client)
		if err := <-ended; !errors.Is(err, errLost) || ctx.Err() != nil {
			t.Errorf("silent %v: ended with %v", silent, err)
		}
		wantReset(t, "guest", guest)
		if err := <-filled; err == nil && !silent {
			t.Error("all was written")
		}
		_ = guest.Close()
		cancel()
	}
}

// If the connection in between is lost, both ends are reset.
func TestChainIsCut(t *testing.T) {
	client, server, cut := chain(t)
	write(t, client, "to")
	read(t, server, "to")
	cut()
	wantReset(t, "client", client)
	wantReset(t, "server", server)
}

// Half-closes of both are orderly, in either order.
func TestChainEnds(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // more than all buffers hold
	for _, clientFirst := range []bool{true, false} {
		first, second, _ := chain(t)
		if !clientFirst {
			first, second = second, first
		}
		for _, ends := range [][2]*net.TCPConn{{first, second}, {second, first}} {
			go func() {
				_, _ = ends[0].Write(long)
				_ = ends[0].CloseWrite()
			}()
			if got, err := io.ReadAll(ends[1]); err != nil || !bytes.Equal(got, long) {
				t.Errorf("client first %v: read %d bytes, %v, want %d", clientFirst, len(got), err, len(long))
			}
		}
	}
}

// A server that answers and closes, while the client still sends, is read to its end.
func TestChainEarlyAnswer(t *testing.T) {
	client, server, _ := chain(t)
	write(t, client, "part of a request")
	read(t, server, "part of a request")
	write(t, server, "answer")
	_ = server.Close()
	relaytest.WantAll(t, client, "answer")
	if err := writeUntilError(client); !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the client writes: %v", err)
	}
}
