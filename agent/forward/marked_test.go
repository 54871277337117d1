package forward

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/relay"
	"github.com/katabox/katabox/internal/relay/relaytest"
)

// markedPair is pair with the ends of the host's connection marked.
func markedPair(t *testing.T, addr string) (host relay.HalfCloser, port *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp4", localhost)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn := relaytest.Connect(t, addr, waitTime)
	if err := api.WriteFrame(conn, &api.ForwardOpen{Address: l.Addr().String(), Marked: true}); err != nil {
		t.Fatal(err)
	}
	var opened api.ForwardOpened
	if err := api.ReadFrame(conn, &opened); err != nil || !opened.GetMarked() {
		t.Fatalf("%v, %v, want marked ends", &opened, err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accepted.Close() })
	_ = accepted.SetDeadline(time.Now().Add(waitTime))
	return relay.Mark(conn), accepted.(*net.TCPConn)
}

func wantReset(t *testing.T, conn io.Reader, after string) {
	t.Helper()
	if got, err := io.ReadAll(conn); string(got) != after || !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("read %q, %v, want %q and a reset", got, err, after)
	}
}

func TestMarkedResetOfThePort(t *testing.T) {
	addr, _ := start(t)
	host, port := markedPair(t, addr)
	write(t, port, "half an ans")
	_ = port.SetLinger(0)
	_ = port.Close()
	wantReset(t, host, "half an ans")
}

func TestMarkedResetOfTheHost(t *testing.T) {
	addr, _ := start(t)
	host, port := markedPair(t, addr)
	write(t, host, "half a requ")
	_ = host.Close()
	got := make([]byte, len("half a requ"))
	n, err := io.ReadFull(port, got)
	if err == nil {
		_, err = port.Read(make([]byte, 1))
	}
	if !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("read %q, %v, want a reset", got[:n], err)
	}
}

// Only a host that asks gets marks: an older one sends and expects plain bytes.
func TestMarksAreAskedFor(t *testing.T) {
	addr, _ := start(t)
	host, port := pair(t, addr, "tcp4", localhost)
	write(t, host, "plain")
	_ = host.CloseWrite()
	relaytest.WantAll(t, port, "plain")
	write(t, port, "as well")
	_ = port.Close()
	relaytest.WantAll(t, host, "as well")
}

func TestMarkedEnds(t *testing.T) {
	addr, _ := start(t)
	host, port := markedPair(t, addr)
	write(t, host, "request")
	_ = host.CloseWrite()
	relaytest.WantAll(t, port, "request")
	write(t, port, "answer")
	_ = port.Close()
	relaytest.WantAll(t, host, "answer")
}

// An agent that ends cuts its connections: what it did not read is lost.
func TestMarkedEndOfTheServer(t *testing.T) {
	addr, stop := start(t)
	host, port := markedPair(t, addr)
	write(t, port, "half")
	got := make([]byte, len("half"))
	if _, err := io.ReadFull(host, got); err != nil {
		t.Fatal(err)
	}
	stop()
	wantReset(t, host, "")
	wantReset(t, port, "")
}
