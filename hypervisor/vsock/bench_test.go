package vsock

import (
	"io"
	"testing"
)

// The peers in these benchmarks are goroutines of the same process: they
// compare versions of this package with each other, not machines.

// BenchmarkHostToGuest writes to a guest that drops what it gets.
func BenchmarkHostToGuest(b *testing.B) {
	tr, g := boot(b, nil)
	var h header
	got := uint32(0)
	c, req := g.dialled(tr, 1, maxBufAlloc)
	h = req.reply(opCreditUpdate)
	g.mu.Lock()
	g.handle = func(p header, _ []byte) {
		got += p.length
		if got-h.fwdCount >= maxBufAlloc/4 {
			h.fwdCount = got
			g.send(h, nil)
		}
	}
	g.mu.Unlock()
	data := make([]byte, 1<<20)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := c.Write(data); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGuestToHost reads what a guest sends in packets of 64 KiB.
func BenchmarkGuestToHost(b *testing.B) {
	credit := make(chan uint32, 1024)
	tr, g := boot(b, nil)
	c, req := g.dialled(tr, 1, maxBufAlloc)
	g.mu.Lock()
	g.handle = func(p header, _ []byte) { credit <- p.fwdCount }
	g.mu.Unlock()
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		data := make([]byte, maxPayload)
		sent, told := uint32(0), uint32(0)
		for {
			for sent-told > maxBufAlloc-maxPayload {
				select {
				case told = <-credit:
				case <-stop:
					return
				}
			}
			g.send(req.reply(opData), data)
			sent += maxPayload
		}
	}()
	buf := make([]byte, 256<<10)
	b.SetBytes(1 << 20)
	for b.Loop() {
		for left := 1 << 20; left > 0; {
			n, err := c.Read(buf[:min(left, len(buf))])
			if err != nil {
				b.Fatal(err)
			}
			left -= n
		}
	}
	close(stop)
	<-done
}

// BenchmarkPing sends one byte through a guest and back.
func BenchmarkPing(b *testing.B) {
	tr, _ := boot(b, splice())
	d, a := pipe(b, tr, 1)
	go func() { _, _ = io.Copy(a, a) }()
	one := []byte{1}
	for b.Loop() {
		if _, err := d.Write(one); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(d, one); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkConnect opens and closes connections.
func BenchmarkConnect(b *testing.B) {
	tr, _ := boot(b, accept)
	for b.Loop() {
		c, err := tr.Dial(b.Context(), 1)
		must(b, err)
		must(b, c.Close())
	}
}
