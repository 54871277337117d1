package vsock

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	mdvsock "github.com/mdlayher/vsock"
)

func TestDial(t *testing.T) {
	tr, g := boot(t, nil)
	if tr.Kind() != KindVhostUser {
		t.Errorf("kind %q", tr.Kind())
	}
	c, req := g.dialled(tr, 1024, maxBufAlloc)
	want := header{
		srcCID: 2, dstCID: 3, srcPort: req.srcPort, dstPort: 1024,
		kind: 1, op: opRequest, bufAlloc: 256 << 10,
	}
	if diff := cmp.Diff(want, req, cmp.AllowUnexported(header{})); diff != "" {
		t.Error("request (-want +got):", diff)
	}
	addrs := []net.Addr{&mdvsock.Addr{ContextID: 2, Port: req.srcPort}, &mdvsock.Addr{ContextID: 3, Port: 1024}}
	if diff := cmp.Diff(addrs, []net.Addr{c.LocalAddr(), c.RemoteAddr()}); diff != "" {
		t.Error("addresses (-want +got):", diff)
	}
	if n, err := c.Write([]byte("ping")); n != 4 || err != nil {
		t.Errorf("write: %d, %v", n, err)
	}
	if p := g.expect(opData); string(p.data) != "ping" {
		t.Errorf("guest got %q", p.data)
	}
	g.send(req.reply(opData), []byte("pong"))
	buf := make([]byte, 100)
	if n, err := c.Read(buf); string(buf[:n]) != "pong" || err != nil {
		t.Errorf("read %q, %v", buf[:n], err)
	}
	must(t, c.Close())
	if p := g.expect(opShutdown); p.flags != shutBoth {
		t.Errorf("shutdown with flags %d", p.flags)
	}
	if err := c.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
}

// TestDialBeforeDriver dials a guest whose driver starts only afterwards.
func TestDialBeforeDriver(t *testing.T) {
	tr, g := bootPaused(t, accept)
	done := make(chan error, 1)
	go func() {
		c, err := tr.Dial(context.Background(), 5)
		if err == nil {
			err = c.Close()
		}
		done <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := tr.Dial(ctx, 5); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dial without a driver: %v", err)
	}
	g.start()
	must(t, <-done)
}

func TestDialRefused(t *testing.T) {
	tr, _ := boot(t, func(g *fakeGuest, h header, _ []byte) { g.send(h.reply(opReset), nil) })
	_, err := tr.Dial(t.Context(), 7)
	var op *net.OpError
	if !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &op) {
		t.Errorf("got %v, want ECONNREFUSED", err)
	}
}

// TestDialCancelled checks that the guest is told when a dial was cancelled.
func TestDialCancelled(t *testing.T) {
	tr, g := boot(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := tr.Dial(ctx, 7)
		done <- err
	}()
	req := g.expect(opRequest)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
	if p := g.expect(opReset); p.srcPort != req.srcPort {
		t.Errorf("reset of %+v", p.header)
	}
	// An answer that was under way finds no connection.
	g.send(req.reply(opResponse), nil)
	g.expect(opReset)
}

// TestDialNoAnswer checks that a lost request is repeated.
func TestDialNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDevice(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := d.dial(ctx, (*device).freePort, 5)
			done <- err
		}()
		synctest.Wait()
		only := func() *conn {
			all := d.snapshot()
			if len(all) != 1 {
				t.Fatalf("%d connections", len(all))
			}
			return all[0]
		}
		first := only()
		time.Sleep(10 * answerTimeout)
		synctest.Wait()
		if only() != first {
			t.Fatal("gave up on a guest that was not asked")
		}
		first.requested.Store(true)
		d.outbox.mu.Lock()
		d.outbox.conns, first.pending, first.queued = nil, 0, false
		d.outbox.mu.Unlock()
		time.Sleep(3 * answerTimeout)
		synctest.Wait()
		if only() == first {
			t.Error("no second attempt")
		}
		if len(d.outbox.resets) != 1 {
			t.Error("the first attempt was not reset")
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if len(d.snapshot()) != 0 || d.dialing != 0 {
			t.Errorf("%d connections, %d dialing are left", len(d.snapshot()), d.dialing)
		}
	})
}

func TestDialTooMany(t *testing.T) {
	tr, _ := bootPaused(t, nil)
	d := tr.(*userTransport).device()
	for range maxDialing {
		if _, err := d.newDialing((*device).freePort, 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tr.Dial(t.Context(), 1); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("got %v, want EAGAIN", err)
	}
}
