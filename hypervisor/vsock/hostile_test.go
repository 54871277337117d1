package vsock

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"

	"github.com/katabox/katabox/hypervisor/vhostuser/vhosttest"
)

// TestHostilePackets sends what no driver sends, and checks the answers and
// that the device still works.
func TestHostilePackets(t *testing.T) {
	tr, g := boot(t, nil)
	mend := func(f func(h *header)) header {
		h := fromGuest(7, 80, opRequest)
		f(&h)
		return h
	}
	for _, tc := range []struct {
		name  string
		h     header
		data  []byte
		reset bool
	}{
		{"from another guest", mend(func(h *header) { h.srcCID = 4 }), nil, false},
		{"from the host", mend(func(h *header) { h.srcCID = 2 }), nil, false},
		{"high bits in the CID", mend(func(h *header) { h.srcCID |= 1 << 32 }), nil, false},
		{"to another guest", mend(func(h *header) { h.dstCID = 4 }), nil, false},
		{"request", mend(func(*header) {}), nil, true},
		{"seqpacket", mend(func(h *header) { h.kind = 2 }), nil, true},
		{"operation 0", mend(func(h *header) { h.op = 0 }), nil, true},
		{"operation 8", mend(func(h *header) { h.op = 8 }), nil, true},
		{"answer to nothing", mend(func(h *header) { h.op = opResponse }), nil, true},
		{"data for nothing", mend(func(h *header) { h.op = opData }), []byte("x"), true},
		{"credit for nothing", mend(func(h *header) { h.op = opCreditRequest }), nil, true},
		{"shutdown of nothing", mend(func(h *header) { h.op = opShutdown; h.flags = ^uint32(0) }), nil, true},
		{"reset of nothing", mend(func(h *header) { h.op = opReset }), nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g.send(tc.h, tc.data)
			if tc.reset {
				g.expect(opReset)
			}
			g.checkAlive(tr)
		})
	}
	for _, n := range []int{0, 1, headerLen - 1} {
		t.Run(fmt.Sprintf("%d bytes", n), func(t *testing.T) {
			g.sendRaw(make([]byte, n))
			g.checkAlive(tr)
		})
	}
}

// checkAlive checks that a dial reaches the guest, which ends the connection.
func (g *fakeGuest) checkAlive(tr Transport) {
	g.t.Helper()
	c, req := g.dialled(tr, 4242, maxBufAlloc)
	g.send(req.reply(opReset), nil)
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		g.t.Errorf("read: %v", err)
	}
}

// TestGuestOpensNone sends requests to ports of the host, free ones and those
// of the host's own connections: each is reset, and leaves nothing.
func TestGuestOpensNone(t *testing.T) {
	tr, g := boot(t, nil)
	d := tr.(*userTransport).device()
	c, req := g.dialled(tr, 1024, maxBufAlloc)
	for _, port := range []uint32{0, 1, 1023, 1024, 1029, req.srcPort, 1<<31 + 1, ^uint32(0)} {
		g.send(fromGuest(9000, port, opRequest), nil)
		if p := g.expect(opReset); p.srcPort != port || p.dstPort != 9000 {
			t.Errorf("answer to a request to port %d: %+v", port, p.header)
		}
	}
	if all := d.snapshot(); len(all) != 1 || all[0] != c.(*conn) {
		t.Errorf("%d connections, want the host's own", len(all))
	}
	must(t, c.Close())
	g.expect(opShutdown)
	g.send(fromGuest(1024, req.srcPort, opRequest), nil) // on the connection that waits for the guest
	g.expect(opReset)
	if n := len(d.snapshot()); n != 0 {
		t.Errorf("%d connections are left", n)
	}
	g.quiet()
}

// TestHostileConnections breaks the rules within a connection: it is reset.
func TestHostileConnections(t *testing.T) {
	for _, tc := range []struct {
		name string
		mend func(h *header)
		data []byte
	}{
		{"longer than it is", func(h *header) { h.op = opData; h.length = 100 }, []byte("short")},
		{"length of 4 GiB", func(h *header) { h.op = opData; h.length = ^uint32(0) }, []byte("short")},
		{"second request", func(h *header) { h.op = opRequest }, nil},
		{"unknown operation", func(h *header) { h.op = 99 }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr, g := boot(t, nil)
			c, req := g.dialled(tr, 1, maxBufAlloc)
			h := req.reply(opReset)
			tc.mend(&h)
			g.send(h, tc.data)
			g.expect(opReset)
			if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("read: %v", err)
			}
		})
	}
	t.Run("data after shutdown", func(t *testing.T) {
		tr, g := boot(t, nil)
		c, req := g.dialled(tr, 1, maxBufAlloc)
		h := req.reply(opShutdown)
		h.flags = shutSend
		g.send(h, nil)
		g.send(req.reply(opData), []byte("more"))
		g.expect(opReset)
		if got, err := io.ReadAll(c); len(got) != 0 || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
	})
	t.Run("answer before the request", func(t *testing.T) {
		d := newDevice(t.Context())
		c, err := d.newDialing((*device).freePort, 5)
		must(t, err)
		d.outbox.add(c, pendRequest, 0)
		h := fromGuest(5, c.addr.host, opResponse)
		if c.receive(h, nil) {
			t.Error("a connection was opened by an answer to nothing")
		}
	})
}

// TestHostileCredit lies about credit: only the guest's own connection stalls.
func TestHostileCredit(t *testing.T) {
	tr, g := boot(t, nil)
	c, req := g.dialled(tr, 1, 100)
	h := req.reply(opCreditUpdate)
	done := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, 200))
		done <- err
	}()
	if p := g.expect(opData); len(p.data) != 100 {
		t.Errorf("guest got %d bytes of its credit of 100", len(p.data))
	}
	h.bufAlloc, h.fwdCount = 50, 0 // less than granted before
	for range 100 {
		g.send(h, nil)
	}
	g.quiet()
	h.bufAlloc, h.fwdCount = ^uint32(0), 0
	g.send(h, nil)
	must(t, <-done)
	if p := g.expect(opData); len(p.data) != 100 {
		t.Errorf("guest got the other %d bytes", len(p.data))
	}
	h.bufAlloc, h.fwdCount = 100, 1<<31 // more than it ever received
	g.send(h, nil)
	g.barrier()
	cc := c.(*conn)
	cc.mu.Lock()
	defer cc.mu.Unlock()
	if left := cc.creditLeft(); left != 0 {
		t.Errorf("credit of %d from a lie", left)
	}
}

// TestHostileRings breaks either ring: connections end, nothing spins, and
// after a reset of the driver everything works.
func TestHostileRings(t *testing.T) {
	for name, harm := range map[string]func(g *fakeGuest, c Conn){
		"too many packets": func(g *fakeGuest, _ Conn) { g.tx.SetAvailIdx(1000); g.tx.Kick() },
		"loop of descriptors": func(g *fakeGuest, _ Conn) {
			g.tx.SetDesc(0, vhosttest.Desc{Addr: 1, Len: 0, Flags: vhosttest.Next})
			g.tx.Offer(0)
		},
		"too many buffers": func(g *fakeGuest, c Conn) {
			g.rx.SetAvailIdx(5000)
			_, _ = c.Write([]byte("x"))
		},
		"buffer outside of memory": func(g *fakeGuest, c Conn) {
			for i := range fakeQueueSize {
				g.rx.SetDesc(i, vhosttest.Desc{Addr: ^uint64(0) - 10, Len: 5, Flags: vhosttest.Write})
			}
			_, _ = c.Write([]byte("x"))
		},
		"tiny buffers": func(g *fakeGuest, c Conn) {
			for i := range fakeQueueSize {
				g.rx.SetDescLen(i, headerLen)
			}
			_, _ = c.Write([]byte("x"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr, g := boot(t, nil)
			c, _ := g.dialled(tr, 1, maxBufAlloc)
			harm(g, c)
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("read: %v", err)
			}
			if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("write: %v", err)
			}
		})
	}
}

// TestRepliesAreBounded floods the device with packets for unknown connections
// while it has no buffers for the answers.
func TestRepliesAreBounded(t *testing.T) {
	tr, g := bootPaused(t, nil)
	g.start()
	d := tr.(*userTransport).device()
	g.setHold(true)
	for i := range uint32(fakeQueueSize) {
		g.send(fromGuest(i, 81, opData), nil)
		g.expect(opReset)
	}
	for i := range uint32(3 * maxResets) {
		g.send(fromGuest(i, 81, opData), nil)
		g.send(fromGuest(i, 80, opRequest), nil)
	}
	g.setHold(false)
	for range maxResets {
		g.expect(opReset)
	}
	d.outbox.mu.Lock()
	defer d.outbox.mu.Unlock()
	if len(d.outbox.conns) > 0 || len(d.outbox.resets) > maxResets {
		t.Errorf("%d connections and %d resets are noted", len(d.outbox.conns), len(d.outbox.resets))
	}
}
