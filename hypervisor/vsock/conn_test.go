package vsock

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"
)

// TestNetConn runs the tests that every net.Conn must pass.
func TestNetConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		tr, _ := boot(t, splice())
		a, b := pipe(t, tr, 1)
		return a, b, func() { _ = a.Close(); _ = b.Close() }, nil
	})
}

func TestHostHalfClose(t *testing.T) {
	tr, g := boot(t, nil)
	c, req := g.dialled(tr, 1, maxBufAlloc)
	must(t, c.CloseWrite())
	if p := g.expect(opShutdown); p.flags != shutSend {
		t.Errorf("shutdown with flags %d", p.flags)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write: %v, want EPIPE", err)
	}
	g.send(req.reply(opData), []byte("answer"))
	h := req.reply(opShutdown)
	h.flags = shutBoth
	g.send(h, nil)
	g.expect(opReset) // our answer to a full shutdown
	if got, err := io.ReadAll(c); string(got) != "answer" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	must(t, c.Close())
	g.quiet()
}

func TestGuestHalfClose(t *testing.T) {
	tr, g := boot(t, nil)
	c, req := g.dialled(tr, 1, 8<<20)
	h := req.reply(opShutdown)
	h.flags, h.bufAlloc = shutSend, 8<<20
	g.send(h, nil)
	if got, err := io.ReadAll(c); len(got) != 0 || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	data := bytes.Repeat([]byte("after the guest's end"), 50_000)
	if n, err := c.Write(data); n != len(data) || err != nil {
		t.Fatalf("wrote %d, %v", n, err)
	}
	var got []byte
	for len(got) < len(data) {
		got = append(got, g.expect(opData).data...)
	}
	if !bytes.Equal(got, data) {
		t.Error("guest got something else")
	}
}

func TestGuestStopsReading(t *testing.T) {
	tr, g := boot(t, nil)
	c, req := g.dialled(tr, 1, 0) // no credit: the write waits
	h := req.reply(opShutdown)
	h.flags = shutReceive
	h.bufAlloc = 0
	g.send(h, nil)
	if n, err := c.Write([]byte("x")); n != 0 || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("wrote %d, %v, want EPIPE", n, err)
	}
}

func TestGuestReset(t *testing.T) {
	tr, g := boot(t, nil)
	c, req := g.dialled(tr, 1, maxBufAlloc)
	g.send(req.reply(opData), []byte("last"))
	g.send(req.reply(opReset), nil)
	got, err := io.ReadAll(c)
	if string(got) != "last" || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %q, %v", got, err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("write: %v", err)
	}
	must(t, c.Close())
	g.quiet()
}

// TestCloseTimeout resets a connection that the guest does not close.
func TestCloseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDevice(context.Background())
		c := opened(t, d, 2)
		must(t, c.Close())
		time.Sleep(closeTimeout - time.Second)
		synctest.Wait()
		if d.find(c.addr) == nil {
			t.Fatal("gone before its time")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if d.find(c.addr) != nil || len(d.outbox.resets) != 1 || len(d.outbox.conns) != 0 {
			t.Error("connection was not reset")
		}
	})
}

// TestDeadlines covers what nettest does not: a deadline set while waiting for
// credit, and one that is moved.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDevice(context.Background())
		c := opened(t, d, 2)
		start := time.Now()
		must(t, c.SetDeadline(start.Add(time.Minute)))
		go func() {
			time.Sleep(10 * time.Second)
			_ = c.SetDeadline(start.Add(time.Hour))
		}()
		if n, err := c.Write([]byte("x")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("wrote %d, %v", n, err)
		}
		if took := time.Since(start); took != time.Hour {
			t.Errorf("write ended after %v", took)
		}
		var timeout net.Error
		if _, err := c.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("read: %v", err)
		}
		must(t, c.SetDeadline(time.Time{}))
		must(t, c.Close())
		d.shut(net.ErrClosed)
	})
}

// TestNoDataAfterShutdown closes while a Write waits for credit.
func TestNoDataAfterShutdown(t *testing.T) {
	tr, g := boot(t, nil)
	c, req := g.dialled(tr, 1, 10)
	done := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, 100))
		done <- err
	}()
	if p := g.expect(opData); len(p.data) != 10 {
		t.Errorf("guest got %d bytes, had credit for 10", len(p.data))
	}
	must(t, c.Close())
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("write: %v", err)
	}
	g.expect(opShutdown)
	g.send(req.reply(opCreditUpdate), nil)
	// Later data from the guest is dropped without an answer.
	g.send(req.reply(opData), []byte("too late"))
	g.send(req.reply(opReset), nil)
	g.send(fromGuest(1, 1, opData), nil)
	g.expect(opReset)
	g.quiet()
}
