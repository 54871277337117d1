package vsock

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestGuestCredit checks that the guest never gets more than it allows.
func TestGuestCredit(t *testing.T) {
	tr, g := boot(t, nil)
	c, req := g.dialled(tr, 1, 1000)
	done := make(chan error, 1)
	go func() {
		n, err := c.Write(make([]byte, 3000))
		if n != 3000 {
			t.Errorf("wrote %d", n)
		}
		done <- err
	}()
	h := req.reply(opCreditUpdate)
	h.bufAlloc = 1000
	for _, read := range []uint32{0, 600, 1000, 2000} {
		h.fwdCount = read
		g.send(h, nil)
		want := 1000
		switch read {
		case 0:
			// The first thousand was under way.
		case 600:
			want = 600
		case 1000:
			want = 400
		}
		got := 0
		for got < want {
			got += len(g.expect(opData).data)
		}
		if got != want {
			t.Errorf("got %d bytes after reading %d, want %d", got, read, want)
		}
	}
	must(t, <-done)
	g.quiet()
}

// TestHostCredit checks what the guest is told: in time, and never more than
// there is room for.
func TestHostCredit(t *testing.T) {
	tr, g := boot(t, nil)
	c, req := g.dialled(tr, 1, maxBufAlloc)
	if req.bufAlloc != maxBufAlloc {
		t.Fatalf("buf_alloc %d", req.bufAlloc)
	}
	g.send(req.reply(opCreditRequest), nil)
	if p := g.expect(opCreditUpdate); p.bufAlloc != maxBufAlloc || p.fwdCount != 0 {
		t.Errorf("credit %+v", p.header)
	}
	for range maxBufAlloc / maxPayload {
		g.send(req.reply(opData), make([]byte, maxPayload))
	}
	for i := range uint32(2) {
		_, err := io.ReadFull(c, make([]byte, maxBufAlloc/2))
		must(t, err)
		if p := g.expect(opCreditUpdate); p.fwdCount != (i+1)*maxBufAlloc/2 {
			t.Errorf("told %d after %d halves", p.fwdCount, i+1)
		}
	}
	// Data packets carry the count too, so no separate packet is needed.
	g.send(req.reply(opData), make([]byte, 100))
	_, err := io.ReadFull(c, make([]byte, 100))
	must(t, err)
	_, err = c.Write([]byte("x"))
	must(t, err)
	if p := g.expect(opData); p.fwdCount != maxBufAlloc+100 {
		t.Errorf("data told %d", p.fwdCount)
	}
	g.quiet()
}

// TestGuestOverruns ends a connection whose guest sends more than it may.
func TestGuestOverruns(t *testing.T) {
	tr, g := boot(t, nil)
	c, req := g.dialled(tr, 1, maxBufAlloc)
	for range maxBufAlloc / maxPayload {
		g.send(req.reply(opData), make([]byte, maxPayload))
	}
	g.send(req.reply(opData), []byte{1})
	g.expect(opReset)
	n, err := io.Copy(io.Discard, c)
	if n != maxBufAlloc || err == nil {
		t.Errorf("read %d, %v", n, err)
	}
}

// TestManyConnections opens a thousand pairs concurrently, each of which
// carries verified bytes in both directions.
func TestManyConnections(t *testing.T) {
	const n, size = 1000, 40 << 10
	tr, _ := boot(t, splice())
	near, far := make([]Conn, n), make([]Conn, n)
	for i := range n {
		near[i], far[i] = pipe(t, tr, uint32(i))
	}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { echoBack(far[i]) })
		all.Go(func() {
			defer near[i].Close()
			if err := exchange(near[i], uint64(i), size); err != nil {
				t.Errorf("connection %d: %v", i, err)
			}
		})
	}
	all.Wait()
}

// echoBack echoes until the end of file, and waits for the peer's close.
func echoBack(c Conn) {
	defer c.Close()
	_, _ = io.Copy(c, c)
	_ = c.CloseWrite()
	_, _ = io.Copy(io.Discard, c)
}

// exchange sends size bytes, half-closes, and checks the echo.
func exchange(c Conn, seed uint64, size int) error {
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	data := make([]byte, size)
	fill := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = fill.Read(data)
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(data)
		sent <- errors.Join(err, c.CloseWrite())
	}()
	back, err := io.ReadAll(c)
	if err = errors.Join(err, <-sent); err == nil && !bytes.Equal(back, data) {
		err = errors.New("something else came back")
	}
	return err
}

// TestSlowReaders fills connections that are not read: the buffered data is
// bounded, and another connection still works.
func TestSlowReaders(t *testing.T) {
	tr, _ := boot(t, splice())
	const n = 20
	var all sync.WaitGroup
	var stuck []Conn
	for i := range uint32(n) {
		d, a := pipe(t, tr, i)
		stuck = append(stuck, d, a)
		all.Go(func() {
			if k, err := d.Write(make([]byte, 1<<20)); k != maxBufAlloc || err == nil {
				t.Errorf("wrote %d, %v", k, err)
			}
		})
		r := a.(*conn)
		for full := false; !full; {
			r.mu.Lock()
			full = r.in.len == maxBufAlloc
			r.mu.Unlock()
			runtime.Gosched()
		}
	}
	held := 0
	for _, c := range tr.(*userTransport).device().snapshot() {
		c.mu.Lock()
		held += c.in.len
		if c.in.block != nil && len(c.in.block.data) > int(c.bufAlloc) {
			t.Errorf("%d bytes of buffer for a credit of %d", len(c.in.block.data), c.bufAlloc)
		}
		c.mu.Unlock()
	}
	if held != n*maxBufAlloc {
		t.Errorf("%d bytes held", held)
	}
	d, a := pipe(t, tr, n)
	go func() { _, _ = io.Copy(a, a); _ = a.CloseWrite() }()
	if err := exchange(d, 1, 1<<20); err != nil {
		t.Error(err)
	}
	for _, c := range append(stuck, d, a) {
		must(t, c.Close())
	}
	all.Wait()
}

// TestNoReceiveBuffers removes the guest's receive buffers while many write:
// writers wait and respect their deadlines, control packets go first, and no
// writer starves.
func TestNoReceiveBuffers(t *testing.T) {
	tr, g := boot(t, nil)
	const writers = 40
	var conns []Conn
	for range writers {
		c, _ := g.dialled(tr, 1, maxBufAlloc)
		conns = append(conns, c)
	}
	g.setHold(true)
	for range fakeQueueSize {
		_, err := conns[0].Write([]byte("fill"))
		must(t, err)
	}
	must(t, conns[1].SetWriteDeadline(time.Now().Add(10*time.Millisecond)))
	if n, err := conns[1].Write([]byte("late")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("wrote %d, %v", n, err)
	}
	var all sync.WaitGroup
	const size = 3 * fakeBuffer
	for _, c := range conns[2:] {
		all.Go(func() {
			if n, err := c.Write(make([]byte, size)); n != size || err != nil {
				t.Errorf("wrote %d, %v", n, err)
			}
		})
	}
	must(t, conns[0].Close()) // its shutdown waits too
	for range fakeQueueSize {
		g.expect(opData)
	}
	g.setHold(false)
	g.expect(opShutdown)
	all.Wait()
	got := 0
	for got < (writers-2)*size {
		got += len(g.expect(opData).data)
	}
	if line := &tr.(*userTransport).device().line; !line.empty() {
		t.Error("a waiter is left")
	}
}

// fillBuffers uses up all receive buffers, and holds them.
func (g *fakeGuest) fillBuffers(tr Transport) {
	g.t.Helper()
	c, _ := g.dialled(tr, 1, maxBufAlloc)
	g.setHold(true)
	for range fakeQueueSize {
		_, err := c.Write([]byte("fill"))
		must(g.t, err)
		g.expect(opData)
	}
}

// TestOneKick gives buffers to many waiting writers with one notification: each
// has to call the next.
func TestOneKick(t *testing.T) {
	tr, g := boot(t, nil)
	var conns []Conn
	const n = 50
	for range n {
		c, _ := g.dialled(tr, 1, maxBufAlloc)
		conns = append(conns, c)
	}
	g.fillBuffers(tr)
	var all sync.WaitGroup
	for _, c := range conns {
		all.Go(func() {
			if n, err := c.Write([]byte("wait")); n != 4 || err != nil {
				t.Errorf("wrote %d, %v", n, err)
			}
		})
	}
	d := tr.(*userTransport).device()
	for waiting := 0; waiting < n; {
		d.line.mu.Lock()
		waiting = len(d.line.waiting)
		d.line.mu.Unlock()
		runtime.Gosched()
	}
	g.giveHeld()
	all.Wait()
	for range n {
		g.expect(opData)
	}
}

// TestTurns gives turns to connections that do not, or no longer, want them.
func TestTurns(t *testing.T) {
	d := newDevice(t.Context())
	var conns []*conn
	for i := range uint32(3) {
		c := opened(t, d, i)
		conns = append(conns, c)
		d.line.join(c)
		d.line.join(c) // has no effect
	}
	conns[1].wantTurn, conns[2].wantTurn = true, true
	d.line.next()
	if conns[0].hasTurn || !conns[1].hasTurn || conns[2].hasTurn {
		t.Error("the first that wanted a turn did not get it")
	}
	// The second one cannot use its turn.
	must(t, conns[1].SetWriteDeadline(time.Unix(1, 0)))
	if _, err := conns[1].Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("write: %v", err)
	}
	if conns[1].hasTurn || !conns[2].hasTurn {
		t.Error("the turn was not passed on")
	}
	// The third has no credit.
	must(t, conns[2].SetWriteDeadline(time.Now().Add(time.Millisecond)))
	d.line.join(conns[0])
	conns[0].wantTurn = true
	if _, err := conns[2].Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("write: %v", err)
	}
	if !conns[0].hasTurn || !d.line.empty() {
		t.Error("the turn was not passed on for lack of credit")
	}
}

// TestPushAfterShutdown is a Write that was under way when the connection was
// shut down: nothing may be sent after it.
func TestPushAfterShutdown(t *testing.T) {
	tr, g := boot(t, nil)
	c, _ := g.dialled(tr, 1, maxBufAlloc)
	must(t, c.CloseWrite())
	g.expect(opShutdown)
	if sent, waiting := tr.(*userTransport).device().push(c.(*conn), []byte("late"), true); sent != 0 || waiting {
		t.Errorf("sent %d, waiting %v", sent, waiting)
	}
	g.quiet()
}
