package accept

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/katabox/katabox/agent/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds the wait of one step.
const patience = 30 * time.Second

// serve serves a socket, and returns a function that connects to it and one
// that ends the serving.
func serve(t *testing.T, limit int, handle Handler) (dial func() net.Conn, end func()) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, limit, handle) }()
	end = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		done <- nil
	}
	t.Cleanup(end)
	return func() net.Conn {
		conn, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(patience))
		return conn
	}, end
}

// hold answers and keeps the connection, and its place unless told to release
// it, until the peer or the serving ends.
func hold(ctx context.Context, conn net.Conn, release func()) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := Answer(conn, &api.ForwardOpened{Error: "held"}, patience); err != nil {
		return err
	}
	buf := make([]byte, 1)
	for {
		if _, err := conn.Read(buf); err != nil {
			return err
		}
		release()
	}
}

func held(t *testing.T, conn net.Conn) {
	t.Helper()
	var opened api.ForwardOpened
	if err := api.ReadFrame(conn, &opened); err != nil || opened.GetError() != "held" {
		t.Fatalf("%q, %v", opened.GetError(), err)
	}
}

// A connection beyond the limit waits until another ends or releases its place.
func TestLimit(t *testing.T) {
	dial, _ := serve(t, 2, hold)
	first, second, third, fourth := dial(), dial(), dial(), dial()
	held(t, first)
	held(t, second)
	_ = third.SetDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := third.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a third connection is handled: %d, %v", n, err)
	}
	_ = third.SetDeadline(time.Now().Add(patience))
	for range 2 { // the second time changes nothing
		if _, err := first.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	held(t, third)
	_ = second.Close()
	held(t, fourth)
}

// Every connection ends when the serving ends.
func TestEnd(t *testing.T) {
	dial, end := serve(t, 2, hold)
	conn := dial()
	held(t, conn)
	end()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read: %v, want the end of file", err)
	}
}

func TestListenerFails(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := Serve(t.Context(), l, 1, hold); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v, want net.ErrClosed", err)
	}
}
