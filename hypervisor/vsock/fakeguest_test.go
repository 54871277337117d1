package vsock

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/vhostuser/vhosttest"
)

const (
	fakeQueueSize = 128
	// fakeBuffer is the length of a receive buffer, as Linux has it.
	fakeBuffer = headerLen + 4096
	fakeWait   = 20 * time.Second
)

// packet is a packet that the guest got.
type packet struct {
	header
	data []byte
}

// fakeGuest is a virtual machine whose driver is the test.
type fakeGuest struct {
	t     testing.TB
	front *vhosttest.FrontEnd
	// handle gets every packet, in the goroutine that receives; data is valid
	// until it returns. If nil, they go to packets.
	handle  func(h header, data []byte)
	packets chan packet

	rx, tx   *vhosttest.Queue
	rxBufs   [][]byte
	txBufs   [][]byte
	receiver sync.WaitGroup

	mu   sync.Mutex
	free []uint16 // of tx
	// hold makes the guest keep receive buffers in held instead of offering
	// them again.
	hold bool
	held []uint16
	// resets counts the driver's resets, to recognize buffers from before one.
	resets int
}

// privateMemory makes the guests' memory private to this process, which has it
// in these tests.
var privateMemory bool

// MemoryOwner is for hypervisor.OwnerOf.
func (g *fakeGuest) MemoryOwner() hypervisor.MemoryOwner {
	if !privateMemory {
		return nil
	}
	return self{}
}

// self is this process as the owner of guest memory.
type self struct{}

func (self) Hold() (int, bool)       { return os.Getpid(), true }
func (self) Release()                {}
func (self) User() (uid, gid uint32) { return 0, 0 }

// Attach implements hypervisor.Attacher; the driver is not up yet.
func (g *fakeGuest) Attach(_ context.Context, d hypervisor.Device) error {
	dev, ok := d.(hypervisor.VhostUserVsock)
	if !ok {
		return errors.New("wrong kind of device")
	}
	g.front = vhosttest.New(g.t, dev.Socket)
	return nil
}

// boot makes a transport with a guest attached and its driver up. A nil handle
// lets the test read the packets.
func boot(t testing.TB, handle func(g *fakeGuest, h header, data []byte)) (Transport, *fakeGuest) {
	t.Helper()
	tr, g := bootPaused(t, handle)
	g.start()
	return tr, g
}

func bootPaused(t testing.TB, handle func(g *fakeGuest, h header, data []byte)) (Transport, *fakeGuest) {
	t.Helper()
	tr, err := Open(context.Background(), Options{VhostPath: "/nonexistent"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error("close:", err)
		}
	})
	return tr, attached(t, tr, handle)
}

// attached gives a transport's device to a new guest, whose driver is not up.
func attached(t testing.TB, tr Transport, handle func(g *fakeGuest, h header, data []byte)) *fakeGuest {
	t.Helper()
	g := &fakeGuest{t: t, packets: make(chan packet, 4096)}
	if handle != nil {
		g.handle = func(h header, data []byte) { handle(g, h, data) }
	}
	must(t, tr.Attach(t.Context(), g))
	return g
}

// start brings the driver up for the first time.
func (g *fakeGuest) start() {
	g.t.Helper()
	g.front.Handshake()
	g.rx = g.front.NewQueue(receiveQueue, fakeQueueSize)
	g.tx = g.front.NewQueue(transmitQueue, fakeQueueSize)
	for i := range fakeQueueSize {
		buf, addr := g.front.Mem.Alloc(fakeBuffer)
		g.rxBufs = append(g.rxBufs, buf)
		g.rx.SetDesc(i, vhosttest.Desc{Addr: addr, Len: fakeBuffer, Flags: vhosttest.Write})
		buf, addr = g.front.Mem.Alloc(headerLen + maxPayload)
		g.txBufs = append(g.txBufs, buf)
		g.tx.SetDesc(i, vhosttest.Desc{Addr: addr})
	}
	g.restart(0, 0)
	g.receiver.Go(g.receive)
	// Before the memory is unmapped, which was made later than the transport.
	g.t.Cleanup(func() {
		g.rx.CloseCall()
		g.receiver.Wait()
	})
}

// restart starts the queues from these entries; 0 is a driver's reset.
func (g *fakeGuest) restart(rxBase, txBase uint16) {
	g.t.Helper()
	if rxBase == 0 {
		g.mu.Lock()
		g.rx.Reset()
		g.tx.Reset()
		g.free, g.held = nil, nil
		g.resets++
		for i := range fakeQueueSize {
			g.free = append(g.free, uint16(i))
		}
		g.rx.Offer(g.free...)
		g.mu.Unlock()
	}
	g.rx.Start(rxBase)
	g.tx.Start(txBase)
}

// stop stops the queues and returns their positions.
func (g *fakeGuest) stop() (rxBase, txBase uint16) {
	return g.rx.Stop(), g.tx.Stop()
}

// receive receives packets until the end of the test.
func (g *fakeGuest) receive() {
	for g.rx.Wait(0) {
		for {
			g.mu.Lock()
			head, n, ok := g.rx.Used()
			life, handle := g.resets, g.handle
			g.mu.Unlock()
			if !ok {
				break
			}
			buf := g.rxBufs[head][:n]
			h := decodeHeader((*[headerLen]byte)(buf))
			if !g.sameLife(life) {
				break // offered again meanwhile, and perhaps overwritten
			}
			if int(h.length) != len(buf)-headerLen {
				g.t.Errorf("packet %+v has %d bytes", h, len(buf)-headerLen)
			}
			if handle != nil {
				handle(h, buf[headerLen:])
				g.recycle(head, life)
				continue
			}
			p := packet{h, append([]byte(nil), buf[headerLen:]...)}
			g.recycle(head, life) // first, so that the test can rely on it
			g.packets <- p
		}
	}
}

// sameLife reports whether the driver was not reset since then.
func (g *fakeGuest) sameLife(life int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return life == g.resets
}

func (g *fakeGuest) recycle(head uint16, life int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if life != g.resets {
		return
	}
	if g.hold {
		g.held = append(g.held, head)
		return
	}
	g.rx.Offer(head)
}

// setHold holds receive buffers back, or offers those that were held.
func (g *fakeGuest) setHold(hold bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hold = hold
	if !hold && len(g.held) > 0 {
		g.rx.Offer(g.held...)
		g.held = nil
	}
}

// giveHeld offers the held buffers, all with one notification, and continues to
// hold later ones.
func (g *fakeGuest) giveHeld() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rx.Offer(g.held...)
	g.held = nil
}

// barrier waits until the device has handled everything sent before, and the
// guest has got every answer.
func (g *fakeGuest) barrier() {
	g.t.Helper()
	g.send(fromGuest(1, 1, opData), nil)
	if p := g.expect(opReset); p.srcPort != 1 || p.dstPort != 1 {
		g.t.Errorf("guest got %+v", p.header)
	}
}

// send gives a packet to the device. It sets the length unless the caller has.
func (g *fakeGuest) send(h header, data []byte) {
	if h.length == 0 {
		h.length = uint32(len(data))
	}
	var raw [headerLen]byte
	h.encode(&raw)
	g.sendRaw(raw[:], data)
}

// sendRaw gives any bytes to the device, as one chain.
func (g *fakeGuest) sendRaw(parts ...[]byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		for {
			head, _, ok := g.tx.Used()
			if !ok {
				break
			}
			g.free = append(g.free, head)
		}
		if len(g.free) > 0 {
			break
		}
		if !g.tx.Wait(fakeWait) {
			g.t.Error("device takes no more packets")
			return
		}
	}
	head := g.free[0]
	g.free = g.free[1:]
	n := 0
	for _, p := range parts {
		n += copy(g.txBufs[head][n:], p)
	}
	g.tx.SetDescLen(int(head), uint32(n))
	g.tx.Offer(head)
}

// expect waits for a packet of one kind; others fail the test.
func (g *fakeGuest) expect(op operation) packet {
	g.t.Helper()
	select {
	case p := <-g.packets:
		if p.op != op {
			g.t.Fatalf("guest got %+v, want operation %d", p.header, op)
		}
		return p
	case <-time.After(fakeWait):
		g.t.Fatalf("guest got nothing, want operation %d", op)
	}
	return packet{}
}

// quiet checks that no packet arrives.
func (g *fakeGuest) quiet() {
	g.t.Helper()
	g.barrier()
	select {
	case p := <-g.packets:
		g.t.Errorf("guest got %+v, want nothing", p.header)
	default:
	}
}

// reply makes a header that goes back to where h came from.
func (h header) reply(op operation) header {
	return header{
		srcCID: guestCID, dstCID: hostCID,
		srcPort: h.dstPort, dstPort: h.srcPort,
		kind: typeStream, op: op, bufAlloc: maxBufAlloc,
	}
}

// fromGuest makes a header of a connection that the guest begins.
func fromGuest(guest, host uint32, op operation) header {
	return header{dstPort: guest, srcPort: host}.reply(op)
}

// accept is a handler that answers every dial, and nothing else.
func accept(g *fakeGuest, h header, _ []byte) {
	if h.op == opRequest {
		g.send(h.reply(opResponse), nil)
	}
}

// splice makes a handler that joins the connections to an even port of the
// guest and to the next port: what arrives on one is sent on the other,
// including credit. A dial is answered immediately, and has no credit until the
// other exists.
func splice() func(g *fakeGuest, h header, data []byte) {
	dials := make(map[uint32]header) // the last to each port of the guest
	return func(g *fakeGuest, h header, data []byte) {
		peer, joined := dials[h.dstPort^1]
		credit, fwd := h.bufAlloc, h.fwdCount
		if h.op == opRequest {
			dials[h.dstPort] = h
			answer := h.reply(opResponse)
			if answer.bufAlloc = peer.bufAlloc; joined {
				// So that both can write when both are connected.
				update := peer.reply(opCreditUpdate)
				update.bufAlloc = credit
				g.send(update, nil)
			}
			g.send(answer, nil)
			return
		}
		if own := dials[h.dstPort]; !joined || own.srcPort != h.srcPort {
			return // about an earlier dial
		}
		out := peer.reply(h.op)
		out.flags, out.bufAlloc, out.fwdCount = h.flags, credit, fwd
		g.send(out, data)
	}
}

// dialled opens a connection to a guest whose packets the test reads.
func (g *fakeGuest) dialled(tr Transport, port, credit uint32) (Conn, header) {
	g.t.Helper()
	type result struct {
		c   Conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		c, err := tr.Dial(context.Background(), port)
		done <- result{c, err}
	}()
	req := g.expect(opRequest)
	h := req.reply(opResponse)
	h.bufAlloc = credit
	g.send(h, nil)
	r := <-done
	if r.err != nil {
		g.t.Fatal(r.err)
	}
	must(g.t, r.c.SetDeadline(time.Now().Add(fakeWait)))
	return r.c, req.header
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pipe makes the nth pair of connections that a splicing guest joins.
func pipe(t testing.TB, tr Transport, n uint32) (a, b Conn) {
	t.Helper()
	a, err := tr.Dial(t.Context(), 2*n)
	must(t, err)
	b, err = tr.Dial(t.Context(), 2*n+1)
	must(t, err)
	return a, b
}

// opened makes an open connection of a device without a front end.
func opened(t testing.TB, d *device, guest uint32) *conn {
	t.Helper()
	c, err := d.newDialing((*device).freePort, guest)
	must(t, err)
	c.requested.Store(true)
	if h := fromGuest(guest, c.addr.host, opResponse); !c.receive(header{op: h.op}, nil) {
		t.Fatal("connection was not opened")
	}
	return c
}
