package relay

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/relay/relaytest"
)

// waitTime bounds the wait in one step.
const waitTime = 20 * time.Second

// quick are a Join's times in tests that wait for them.
var quick = times{lastWords: 100 * time.Millisecond, watch: time.Millisecond}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A connection to a server that ignores the end of its input is closed when the
// host has closed its own altogether, and not before.
func TestServerThatStaysSilent(t *testing.T) {
	l, err := net.Listen("tcp4", localhost)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	agent, host := relaytest.Pair(t, waitTime)
	dialled, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	_ = port.SetDeadline(time.Now().Add(waitTime))
	ended := make(chan error, 1)
	go func() {
		ended <- join(t.Context(), agent, dialled.(*net.TCPConn), quick)
	}()
	_ = host.CloseWrite()
	relaytest.WantAll(t, port, "")
	write(t, port, "still talking")
	got := make([]byte, len("still talking"))
	if _, err := io.ReadFull(host, got); err != nil {
		t.Fatalf("after the host's half-close: %v", err)
	}
	_ = host.Close()
	if err := <-ended; !errors.Is(err, errLost) {
		t.Errorf("ended with %v", err)
	}
	if _, err := port.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("the server reads %v", err)
	}
}

func write(t *testing.T, w io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
}

const localhost = "127.0.0.1:0"

// halfPipe is an end of a net.Pipe for synctest.
type halfPipe struct{ net.Conn }

func (halfPipe) CloseWrite() error { return nil }

// takesNone is a connection that accepts no bytes and sends none.
type takesNone struct{ halfPipe }

func (takesNone) Write([]byte) (int, error) { return 0, unix.EPIPE }

// A side that accepts no more bytes may still send, for a limited time.
func TestTakesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, source := net.Pipe()
		to, sink := net.Pipe()
		for _, conn := range []net.Conn{from, source, to, sink} {
			defer conn.Close()
		}
		go func() { _, _ = source.Write([]byte("x")) }()
		side := takesNone{halfPipe{to}}
		if err := usual.copyBytes(side, halfPipe{from}); !errors.Is(err, unix.EPIPE) || errors.Is(err, errLost) {
			t.Errorf("%v, want that the direction ends alone", err)
		}
		began := time.Now()
		if err := usual.copyBytes(halfPipe{from}, side); !errors.Is(err, errLost) {
			t.Errorf("%v, want the loss of the silent side", err)
		}
		if took := time.Since(began); took != usual.lastWords {
			t.Errorf("lost after %v, want %v", took, usual.lastWords)
		}
	})
}
