package vsock

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"
)

// TestRandomInterleavings compares connections with a model of their guest, under
// random interleavings of writes and reads, deadlines, credit that is granted and
// taken back, missing receive buffers, half-closes, closes and resets. No byte is
// lost, doubled or reordered, none comes beyond the guest's credit or after the
// host's end, and a connection that both sides end in order has all of them.
func TestRandomInterleavings(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	for range rounds {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed %#x", seed), func(t *testing.T) { playInterleavings(t, seed) })
	}
}

// playTime is how long a guest does what it likes; then it is generous.
const playTime = 150 * time.Millisecond

func playInterleavings(t *testing.T, seed uint64) {
	const n = 24
	models := make(map[uint32]*model, n)
	tr, g := boot(t, func(_ *fakeGuest, h header, data []byte) { models[h.dstPort].receive(h, data) })
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range uint32(n) {
		models[i] = &model{t: t, g: g, seed: byte(i), abrupt: random.IntN(4) == 0, end: uint64(random.IntN(300 << 10))}
	}
	var hosts sync.WaitGroup
	for i, m := range models {
		r := rand.New(rand.NewPCG(seed, uint64(i)+1))
		c, err := tr.Dial(t.Context(), i)
		must(t, err)
		must(t, c.SetDeadline(time.Now().Add(fakeWait)))
		m.c = c.(*conn)
		ends := new(sync.WaitGroup)
		reading := rand.New(rand.NewPCG(seed, uint64(i)+1<<32))
		ends.Go(func() { m.hostWrites(c, r) })
		ends.Go(func() { m.hostReads(c, reading) })
		hosts.Go(func() {
			ends.Wait()
			_ = c.Close()
		})
	}
	for end := time.Now().Add(playTime); time.Now().Before(end); {
		switch random.IntN(8) {
		case 0:
			g.setHold(random.IntN(2) == 0)
		case 1:
			g.giveHeld()
		default:
			models[uint32(random.IntN(n))].act(random)
		}
	}
	g.setHold(false)
	for _, m := range models {
		m.finish()
	}
	hosts.Wait()
	for i, m := range models {
		m.check(i)
	}
}

// model is the guest's end of a connection, and what both ends know. Byte i of each
// direction is that of streamByte.
type model struct {
	t    testing.TB
	g    *fakeGuest
	seed byte
	// abrupt connections may end at any time, by a reset or a close.
	abrupt bool
	// end is how many bytes the guest sends.
	end uint64

	// wrote is how many bytes the host's writes report, heard how many its reads
	// returned, and heardEnd whether they came to the end. They are the host's.
	wrote, heard uint64
	heardEnd     bool
	c            *conn

	mu sync.Mutex // guards the rest
	// own is a header of the guest's; generous says that it takes all there is.
	own      header
	generous bool
	// got is how many bytes have come, read how many of them the guest has read.
	got, read uint64
	// most is how many may have come, by the credit that was ever granted.
	most uint64
	// sent is how many bytes the guest has sent.
	sent uint64
	// room is the host's buffer and its reads, as last told.
	room, told uint32
	// hostEnded, guestEnded: no more data comes from there. gone: it was reset.
	hostEnded, guestEnded, gone bool
}

// streamByte differs between neighbours, and between blocks of any size that TCP or
// virtio have.
func streamByte(seed byte, i uint64) byte {
	return seed + byte(i) + 31*byte(i>>8) + 101*byte(i>>16)
}

func fillStream(p []byte, seed byte, from uint64) []byte {
	for i := range p {
		p[i] = streamByte(seed, from+uint64(i))
	}
	return p
}

// sameStream reports whether p is the stream's bytes from there on.
func sameStream(p []byte, seed byte, from uint64) bool {
	for i, b := range p {
		if b != streamByte(seed, from+uint64(i)) {
			return false
		}
	}
	return true
}

// receive handles a packet of the host's.
func (m *model) receive(h header, data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch h.op {
	case opRequest:
		m.own = h.reply(opResponse)
		m.grant(opResponse, 4096)
	case opData:
		m.take(data)
	case opShutdown:
		m.hostEnded = m.hostEnded || h.flags&shutSend != 0
		if h.flags == shutBoth {
			m.reset() // as Linux answers
		}
	case opReset:
		m.gone = true
		return
	}
	if uint64(h.fwdCount) > m.sent {
		m.t.Errorf("the host says that it has read %d bytes, %d were sent", h.fwdCount, m.sent)
	}
	m.room, m.told = h.bufAlloc, h.fwdCount
	if m.generous {
		m.goOn()
	}
}

func (m *model) take(data []byte) {
	if m.hostEnded {
		m.t.Errorf("%d bytes came after the end", len(data))
	}
	if !sameStream(data, m.seed, m.got) {
		m.t.Errorf("the %d bytes from %d on are others", len(data), m.got)
	}
	if m.got += uint64(len(data)); m.got > m.most {
		m.t.Errorf("%d bytes came, %d were allowed", m.got, m.most)
	}
}

// act does one thing that a guest may do.
func (m *model) act(r *rand.Rand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch what := r.IntN(20); {
	case m.own.srcCID == 0 || m.gone:
	case what < 8: // reads some, and may have another buffer
		m.read += uint64(r.Int64N(int64(m.got-m.read) + 1))
		m.grant(opCreditUpdate, uint32(r.IntN(64<<10)))
	case what < 18:
		m.send(r.IntN(20 << 10))
	case what == 18:
		m.g.send(m.packet(opCreditRequest), nil)
	case m.abrupt && r.IntN(10) == 0:
		m.reset()
	}
}

// packet is a header with the credit that was granted last.
func (m *model) packet(op operation) header {
	h := m.own
	h.op = op
	return h
}

// grant tells the host what the guest has read, and the size of its buffer.
func (m *model) grant(op operation, alloc uint32) {
	m.own.bufAlloc, m.own.fwdCount = alloc, uint32(m.read)
	m.most = max(m.most, m.read+uint64(alloc))
	m.g.send(m.packet(op), nil)
}

// send sends up to n bytes, as far as the host has room, and the end after the last.
func (m *model) send(n int) {
	used := uint32(m.sent) - m.told
	n = int(min(uint64(n), m.end-m.sent, uint64(m.room-min(used, m.room)), maxPayload))
	if n > 0 {
		m.g.send(m.packet(opData), fillStream(make([]byte, n), ^m.seed, m.sent))
		m.sent += uint64(n)
	}
	if m.sent == m.end && !m.guestEnded {
		m.guestEnded = true
		h := m.packet(opShutdown)
		h.flags = shutSend
		m.g.send(h, nil)
	}
}

func (m *model) reset() {
	m.gone = true
	m.g.send(m.packet(opReset), nil)
}

// finish makes the guest take and send all there is, from now on.
func (m *model) finish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.generous = true
	m.goOn()
}

func (m *model) goOn() {
	if m.gone {
		return
	}
	if m.read < m.got || m.own.bufAlloc != maxBufAlloc {
		m.read = m.got
		m.grant(opCreditUpdate, maxBufAlloc)
	}
	for before := m.sent; ; before = m.sent {
		if m.send(maxPayload); m.sent == before {
			return
		}
	}
}

// hostWrites writes in pieces, some of which a deadline interrupts.
func (m *model) hostWrites(c Conn, r *rand.Rand) {
	for end := uint64(r.IntN(300 << 10)); m.wrote < end; {
		if r.IntN(3) == 0 {
			_ = c.SetWriteDeadline(time.Now().Add(time.Duration(r.IntN(2000)) * time.Microsecond))
		}
		piece := min(end-m.wrote, uint64(1+r.IntN(60<<10)))
		n, err := c.Write(fillStream(make([]byte, piece), m.seed, m.wrote))
		m.wrote += uint64(n)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_ = c.SetWriteDeadline(time.Now().Add(fakeWait))
		} else if err != nil {
			m.failed("write", err)
			return
		}
		if m.abrupt && r.IntN(40) == 0 {
			_ = c.Close()
			return
		}
	}
	if err := c.CloseWrite(); err != nil {
		m.failed("close", err)
	}
}

// hostReads reads in pieces, with pauses.
func (m *model) hostReads(c Conn, r *rand.Rand) {
	buf := make([]byte, 40<<10)
	for {
		n, err := c.Read(buf[:1+r.IntN(len(buf))])
		if !sameStream(buf[:n], ^m.seed, m.heard) {
			m.t.Errorf("the host reads other bytes than the %d from %d on", n, m.heard)
		}
		m.heard += uint64(n)
		if err != nil {
			m.heardEnd = errors.Is(err, io.EOF)
			if !m.heardEnd {
				m.failed("read", err)
			}
			return
		}
		switch r.IntN(16) {
		case 0, 1, 2:
			time.Sleep(time.Duration(r.IntN(500)) * time.Microsecond)
		case 3:
			if m.abrupt {
				_ = c.CloseWrite() // while the other goroutine writes
			}
		}
	}
}

// isOver reports whether the guest has all of the host's bytes, or never will.
func (m *model) isOver() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.abrupt || m.got == m.wrote && m.hostEnded
}

func (m *model) failed(what string, err error) {
	if !m.abrupt {
		m.t.Errorf("%s: %v", what, err)
	}
}

// check compares both ends when the host's is over; the guest's packets may still come.
func (m *model) check(i uint32) {
	for end := time.Now().Add(fakeWait); !m.isOver() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.heard > m.sent || m.got > m.wrote {
		m.t.Errorf("connection %d: of %d bytes of the guest's the host has %d, of %d of the host's the guest has %d", i, m.sent, m.heard, m.wrote, m.got)
	}
	if m.abrupt {
		return
	}
	if m.heard != m.end || !m.heardEnd || m.got != m.wrote || !m.hostEnded {
		m.t.Errorf("connection %d: of %d bytes of the guest's the host has %d (end %v), of %d of the host's the guest has %d (end %v)",
			i, m.end, m.heard, m.heardEnd, m.wrote, m.got, m.hostEnded)
	}
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	if read := m.c.fwdCount.Load(); m.c.sent != uint32(m.got) || read != uint32(m.heard) {
		m.t.Errorf("connection %d: the host counts %d bytes of the %d that it sent, and %d of the %d that it read", i, m.c.sent, m.got, read, m.heard)
	}
}
