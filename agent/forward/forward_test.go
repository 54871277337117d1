package forward

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/containerd/log"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/relay/relaytest"
)

// waitTime bounds the wait of one step.
const waitTime = 20 * time.Second

func TestMain(m *testing.M) {
	_ = log.SetLevel("warn")
	goleak.VerifyTestMain(m)
}

// start serves on a UNIX socket, which can be half-closed like a vsock.
func start(t *testing.T) (addr string, stop func()) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "forward"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- (&Server{Sockets: sockets{}}).Serve(ctx, l) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// open requests a port and returns the answer.
func open(t *testing.T, addr, port string) (*net.UnixConn, string) {
	t.Helper()
	return ask(t, addr, &api.ForwardOpen{Address: port})
}

func ask(t *testing.T, addr string, open *api.ForwardOpen) (*net.UnixConn, string) {
	t.Helper()
	conn := relaytest.Connect(t, addr, waitTime)
	if err := api.WriteFrame(conn, open); err != nil {
		t.Fatal(err)
	}
	var opened api.ForwardOpened
	if err := api.ReadFrame(conn, &opened); err != nil {
		t.Fatal(err)
	}
	return conn, opened.GetError()
}

// pair opens a connection to a listener in the guest, and returns both ends.
func pair(t *testing.T, addr, network, listen string) (host *net.UnixConn, port *net.TCPConn) {
	t.Helper()
	l, err := net.Listen(network, listen)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	host, refusal := open(t, addr, l.Addr().String())
	if refusal != "" {
		t.Fatal(refusal)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(waitTime))
	return host, conn.(*net.TCPConn)
}

func write(t *testing.T, w io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
}

const localhost = "127.0.0.1:0"

func TestHalfCloseOfTheHost(t *testing.T) {
	addr, _ := start(t)
	host, port := pair(t, addr, "tcp4", localhost)
	write(t, host, "request")
	_ = host.CloseWrite()
	relaytest.WantAll(t, port, "request")
	long := strings.Repeat("answer", 1<<18) // More than all buffers hold.
	go func() {
		_, _ = io.WriteString(port, long)
		_ = port.Close()
	}()
	relaytest.WantAll(t, host, long)
}

func TestHalfCloseOfThePort(t *testing.T) {
	addr, _ := start(t)
	host, port := pair(t, addr, "tcp4", localhost)
	write(t, port, "greeting")
	_ = port.CloseWrite()
	relaytest.WantAll(t, host, "greeting")
	long := strings.Repeat("upload", 1<<18)
	go func() {
		_, _ = io.WriteString(host, long)
		_ = host.CloseWrite()
	}()
	relaytest.WantAll(t, port, long)
}

func TestIPv6(t *testing.T) {
	addr, _ := start(t)
	host, port := pair(t, addr, "tcp6", "[::1]:0")
	write(t, host, "x")
	_ = host.CloseWrite()
	relaytest.WantAll(t, port, "x")
	_ = port.Close()
	relaytest.WantAll(t, host, "")
}

func TestResetOfThePort(t *testing.T) {
	addr, _ := start(t)
	host, port := pair(t, addr, "tcp4", localhost)
	_ = port.SetLinger(0)
	_ = port.Close()
	if n, err := host.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if _, err := host.Write([]byte("x")); !errors.Is(err, unix.EPIPE) {
		t.Errorf("write after the reset: %v", err)
	}
}

// What a server sends before it closes with unread bytes arrives, although the
// kernel resets the connection.
func TestLastWordsOfThePort(t *testing.T) {
	addr, _ := start(t)
	host, port := pair(t, addr, "tcp4", localhost)
	write(t, host, "unread")
	write(t, port, "go away")
	got := make([]byte, len("go away"))
	if _, err := io.ReadFull(host, got); err != nil || string(got) != "go away" {
		t.Errorf("%q, %v", got, err)
	}
	_ = port.Close()
	relaytest.WantAll(t, host, "")
}

func TestEndOfTheHost(t *testing.T) {
	addr, _ := start(t)
	host, port := pair(t, addr, "tcp4", localhost)
	write(t, host, "half a requ")
	_ = host.Close()
	relaytest.WantAll(t, port, "half a requ")
	_ = port.Close()
}

func TestRefuses(t *testing.T) {
	addr, _ := start(t)
	l, err := net.Listen("tcp4", localhost)
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	_ = l.Close()
	for address, want := range map[string]string{
		closed:                "connection refused",
		"":                    "want an address and a port",
		"localhost:80":        "want an address and a port",
		"127.0.0.1":           "want an address and a port",
		"127.0.0.1:0":         "want an address and a port",
		"127.0.0.1:http":      "want an address and a port",
		"[fe80::1%lo]:80":     "want an address and a port",
		"::1:80":              "want an address and a port",
		"127.0.0.1:80/../etc": "want an address and a port",
	} {
		conn, refusal := open(t, addr, address)
		if !strings.Contains(refusal, want) {
			t.Errorf("%q: %q, want %q", address, refusal, want)
		}
		relaytest.WantAll(t, conn, "")
	}
}

func TestBadFrames(t *testing.T) {
	addr, _ := start(t)
	for name, bytes := range map[string]string{
		"too long":   "\x00\x01\x00\x00",
		"no message": "\x00\x00\x00\x01\xff",
		"cut":        "\x00\x00\x00\x09abc",
		"empty":      "",
	} {
		conn := relaytest.Connect(t, addr, waitTime)
		write(t, conn, bytes)
		_ = conn.CloseWrite()
		if got, err := io.ReadAll(conn); len(got) != 0 {
			t.Errorf("%s: answered %q, %v", name, got, err)
		}
	}
}

func TestMostConnections(t *testing.T) {
	l, err := net.Listen("tcp4", localhost)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	host, agent := relaytest.Pair(t, waitTime)
	s := &Server{slots: make(chan struct{}, 1)}
	s.slots <- struct{}{}
	served := make(chan error, 1)
	go func() { served <- s.serve(t.Context(), agent, func() {}) }()
	if err := api.WriteFrame(host, &api.ForwardOpen{Address: l.Addr().String()}); err != nil {
		t.Fatal(err)
	}
	var opened api.ForwardOpened
	if err := api.ReadFrame(host, &opened); err != nil || !strings.Contains(opened.GetError(), "connections are open") {
		t.Errorf("answered %q, %v", opened.GetError(), err)
	}
	if err := <-served; err == nil {
		t.Error("served")
	}
	if len(s.slots) != 1 {
		t.Errorf("%d slots are taken, want the one", len(s.slots))
	}
}

// When the server ends, so do connections that are open or being opened.
func TestEndOfTheServer(t *testing.T) {
	addr, stop := start(t)
	silent := relaytest.Connect(t, addr, waitTime)
	write(t, silent, "\x00\x00") // Half a frame's length.
	// It is accepted by the time the next one is answered.
	host, port := pair(t, addr, "tcp4", localhost)
	stop()
	for name, conn := range map[string]net.Conn{"host": host, "port": port, "silent": silent} {
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s reads %d bytes, %v", name, n, err)
		}
	}
}

// halfPipe is an end of a net.Pipe for synctest.
type halfPipe struct{ net.Conn }

func (halfPipe) CloseWrite() error { return nil }

// A host that does not name a target is disconnected in time, and immediately
// when the server ends.
func TestSilentHostIsDropped(t *testing.T) {
	for _, serverEnds := range []time.Duration{time.Hour, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			host, agent := net.Pipe()
			defer host.Close()
			ctx, cancel := context.WithTimeout(t.Context(), serverEnds)
			defer cancel()
			began := time.Now()
			err := new(Server).serve(ctx, halfPipe{agent}, func() {})
			if took, want := time.Since(began), min(openTimeout, serverEnds); err == nil || took != want {
				t.Errorf("dropped after %v, want %v: %v", took, want, err)
			}
		})
	}
}
