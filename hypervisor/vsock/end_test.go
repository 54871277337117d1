package vsock

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/katabox/katabox/hypervisor"
)

// busy makes all blocking calls, and collects their results.
type busy struct {
	all               sync.WaitGroup
	read, write, dial error
	conn              Conn
}

func makeBusy(t *testing.T, tr Transport, g *fakeGuest) *busy {
	t.Helper()
	b := &busy{}
	c, _ := g.dialled(tr, 1, 0)
	b.conn = c
	b.all.Go(func() { _, b.read = c.Read(make([]byte, 1)) })
	b.all.Go(func() { _, b.write = c.Write(make([]byte, 1)) })
	b.all.Go(func() { _, b.dial = tr.Dial(context.Background(), 2) })
	g.expect(opRequest) // the dial's
	return b
}

func (b *busy) check(t *testing.T, want error) {
	t.Helper()
	b.all.Wait()
	for name, err := range map[string]error{"read": b.read, "write": b.write, "dial": b.dial} {
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

func TestFrontEndDeath(t *testing.T) {
	tr, g := boot(t, nil)
	b := makeBusy(t, tr, g)
	g.front.Close()
	b.check(t, ErrGone)
	if _, err := tr.Dial(t.Context(), 1); !errors.Is(err, ErrGone) {
		t.Errorf("dial: %v", err)
	}
	must(t, b.conn.Close())
}

func TestClose(t *testing.T) {
	tr, g := boot(t, nil)
	b := makeBusy(t, tr, g)
	must(t, tr.Close())
	b.check(t, net.ErrClosed)
	must(t, tr.Close())
	if _, err := tr.Dial(t.Context(), 1); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dial: %v", err)
	}
}

func TestCloseBeforeAttach(t *testing.T) {
	tr, err := Open(t.Context(), Options{VhostPath: "/nonexistent"})
	must(t, err)
	must(t, tr.Close())
	if err := tr.Attach(t.Context(), &fakeGuest{t: t}); err == nil {
		t.Error("attached after close")
	}
}

type failing struct{ err error }

func (f failing) Attach(context.Context, hypervisor.Device) error { return f.err }

// TestAttachFails checks that nothing waits for a front end that never
// connected.
func TestAttachFails(t *testing.T) {
	tr, err := Open(t.Context(), Options{VhostPath: "/nonexistent"})
	must(t, err)
	defer tr.Close()
	wrong := errors.New("no such bus")
	if err := tr.Attach(t.Context(), failing{wrong}); !errors.Is(err, wrong) {
		t.Errorf("attach: %v", err)
	}
	if _, err := tr.Dial(t.Context(), 1); !errors.Is(err, ErrGone) {
		t.Errorf("dial: %v, want ErrGone", err)
	}
	if err := tr.Attach(t.Context(), failing{nil}); err == nil {
		t.Error("attached twice")
	}
}

// TestDriverReset ends connections, but not the dial of a guest that comes back.
func TestDriverReset(t *testing.T) {
	tr, g := boot(t, nil)
	c, _ := g.dialled(tr, 1, 0)
	dialled := make(chan error, 1)
	go func() {
		c, err := tr.Dial(context.Background(), 2)
		if err == nil {
			err = c.Close()
		}
		dialled <- err
	}()
	old := g.expect(opRequest)
	g.stop()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v", err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("write: %v", err)
	}
	g.restart(0, 0)
	again := g.expect(opRequest)
	if again.dstPort != old.dstPort || again.srcPort == old.srcPort {
		t.Errorf("second request %+v after %+v", again.header, old.header)
	}
	g.send(again.reply(opResponse), nil)
	must(t, <-dialled)
	g.expect(opShutdown)
}

// TestResetDropsReplies checks that a new driver does not get the previous
// one's packets.
func TestResetDropsReplies(t *testing.T) {
	tr, g := boot(t, nil)
	g.fillBuffers(tr)
	g.send(fromGuest(7, 7, opData), nil) // its answer finds no buffer
	g.stop()
	g.setHold(false)
	g.restart(0, 0)
	g.quiet()
}

// TestPause stops the queues without a reset, as a pause of the machine does:
// connections end then too, and the guest's next packet on one is refused.
func TestPause(t *testing.T) {
	tr, g := boot(t, nil)
	c, req := g.dialled(tr, 1, maxBufAlloc)
	rx, tx := g.stop()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v", err)
	}
	g.restart(rx, tx)
	g.send(req.reply(opData), []byte("after"))
	if p := g.expect(opReset); p.srcPort != req.srcPort || p.dstPort != req.dstPort {
		t.Errorf("reset of %+v, want of %+v", p.header, req)
	}
	g.dialled(tr, 2, maxBufAlloc)
}

// TestHeldPause pauses the machine after that was announced: connections live on,
// and what is written meanwhile arrives. Without the announcement, a later pause
// ends them.
func TestHeldPause(t *testing.T) {
	tr, g := boot(t, nil)
	c, req := g.dialled(tr, 1, maxBufAlloc)
	for range 3 {
		tr.Hold(true)
		rx, tx := g.stop()
		written := make(chan error, 1)
		go func() {
			_, err := c.Write([]byte("meanwhile"))
			written <- err
		}()
		select {
		case err := <-written:
			t.Fatalf("a write to a paused machine returned: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		g.restart(rx, tx)
		tr.Hold(false)
		must(t, <-written)
		if p := g.expect(opData); string(p.data) != "meanwhile" || p.srcPort != req.srcPort {
			t.Errorf("the guest got %q of %+v", p.data, p.header)
		}
		g.send(req.reply(opData), []byte("after"))
		got := make([]byte, 5)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "after" {
			t.Errorf("read %q, %v", got, err)
		}
	}
	g.stop()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read after a pause that was not announced: %v", err)
	}
}

// TestResetStorm resets the driver while connections are opened and closed.
func TestResetStorm(t *testing.T) {
	tr, g := boot(t, accept)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for ctx.Err() == nil {
				c, err := tr.Dial(ctx, 1)
				if err != nil {
					continue
				}
				_ = c.SetDeadline(time.Now().Add(time.Second))
				_, _ = c.Write(make([]byte, 10_000))
				_ = c.Close()
			}
		})
	}
	for range 30 {
		time.Sleep(2 * time.Millisecond)
		g.stop()
		g.restart(0, 0)
	}
	cancel()
	all.Wait()
	must(t, tr.Close())
	d := tr.(*userTransport).device()
	if n := len(d.snapshot()); n != 0 || d.dialing != 0 {
		t.Errorf("%d connections, %d dialing are left", n, d.dialing)
	}
}
