package relay

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// unwoken is a connection whose writer is not woken by the peer's close, as with vsock
// while there is something to read: only a later Write sees it. (No test has a vsock
// connection to itself: kernels need not have its loopback.)
type unwoken struct {
	halfPipe
	closed chan struct{}
	until  time.Time
}

func (u *unwoken) SetWriteDeadline(t time.Time) error { u.until = t; return nil }

func (u *unwoken) Write(b []byte) (int, error) {
	select {
	case <-u.closed:
		return 0, unix.EPIPE
	default:
	}
	if u.until.IsZero() {
		select {} // for good
	}
	time.Sleep(time.Until(u.until))
	return 0, os.ErrDeadlineExceeded
}

// A Write that waits sees the peer's close although nothing wakes it.
func TestMarkedWriteIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below, peer := net.Pipe()
		defer below.Close()
		defer peer.Close()
		u := &unwoken{halfPipe: halfPipe{below}, closed: make(chan struct{})}
		time.AfterFunc(10*retryInterval, func() { close(u.closed) })
		began := time.Now()
		if _, err := Mark(u).Write([]byte("x")); !errors.Is(err, unix.EPIPE) {
			t.Errorf("%v, want the close", err)
		}
		if took := time.Since(began); took > 11*retryInterval {
			t.Errorf("it took %v", took)
		}
	})
}

// Tries add up to one write, and the deadline is the caller's.
func TestMarkedWriteOfASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below, peer := net.Pipe()
		defer below.Close()
		defer peer.Close()
		a, b := Mark(halfPipe{below}), Mark(halfPipe{peer})
		want := bytes.Repeat([]byte("0123456789"), 10)
		wrote := make(chan error, 1)
		go func() { _, err := a.Write(want); wrote <- err }()
		got := make([]byte, len(want))
		for i := range got {
			time.Sleep(retryInterval * 3 / 4)
			if _, err := io.ReadFull(b, got[i:i+1]); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-wrote; err != nil || !bytes.Equal(got, want) {
			t.Errorf("read %q, %v", got, err)
		}
		began, limit := time.Now(), 5*retryInterval/2
		_ = a.SetWriteDeadline(began.Add(limit))
		if _, err := a.Write(want); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write to no reader: %v", err)
		}
		if took := time.Since(began); took != limit {
			t.Errorf("it took %v, want %v", took, limit)
		}
	})
}

// A try that has ended is no sign that the peer is gone.
func TestMarkedEmptyWriteAmongTries(t *testing.T) {
	conn, peer, _ := markedPair(t)
	_ = conn.SetDeadline(time.Time{})
	wrote := make(chan error, 1)
	go func() { _, err := conn.Write(make([]byte, 16<<20)); wrote <- err }() // more than the kernel buffers
	for began := time.Now(); time.Since(began) < 5*retryInterval/2; time.Sleep(time.Millisecond) {
		if _, err := conn.Write(nil); err != nil {
			t.Fatalf("the peer is there: %v", err)
		}
	}
	_ = peer.Close()
	if err := <-wrote; !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the peer is gone: %v", err)
	}
	if _, err := conn.Write(nil); !errors.Is(err, unix.EPIPE) {
		t.Errorf("empty write: %v", err)
	}
}

// Nor is it later, when nothing is written.
func TestMarkedEmptyWriteAfterAWrite(t *testing.T) {
	conn, peer, _ := markedPair(t)
	write(t, conn, "x")
	time.Sleep(3 * retryInterval / 2)
	_ = peer.Close()
	if _, err := conn.Write(nil); !errors.Is(err, unix.EPIPE) {
		t.Errorf("the peer is gone: %v", err)
	}
}
