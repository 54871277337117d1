package vhostuser

import "golang.org/x/sys/unix"

// Buffers is a run of guest memory in pieces. The guest may change the bytes at
// any time, so anything that must be stable is copied first. It is valid only
// within the Queue.Do that made it, or until Queue.Return of its chain. Its
// methods that touch memory must be called within Queue.Do or Guard, except for
// Fill and Drain.
type Buffers struct {
	mem    *memory
	pieces []piece
}

// Plain returns Buffers of this process's own memory, for tests of devices.
func Plain(parts ...[]byte) Buffers {
	b := Buffers{mem: newMemory(mapped{})}
	for _, p := range parts {
		b.pieces = append(b.pieces, piece{&segment{data: p}, 0, uint64(len(p))})
	}
	return b
}

// Len returns the number of bytes left. It takes time proportional to the
// number of pieces.
func (b Buffers) Len() uint64 {
	var n uint64
	for _, p := range b.pieces {
		n += p.len
	}
	return n
}

// CopyTo copies from the front of b to p until either ends, drops the copied
// bytes from b, and returns their number.
func (b *Buffers) CopyTo(p []byte) int {
	n := int(min(uint64(len(p)), b.Len()))
	if n > 0 {
		b.mem.read(p[:n], b.pieces)
		b.Drop(n)
	}
	return n
}

// CopyFrom copies p to the front of b until
// either ends, drops the written bytes from b, and returns their number.
func (b *Buffers) CopyFrom(p []byte) int {
	n := int(min(uint64(len(p)), b.Len()))
	if n > 0 {
		b.mem.write(b.pieces, p[:n])
		b.Drop(n)
	}
	return n
}

// Fill has read put up to size bytes into b, without copying them where the
// guest's memory is mapped, and does not change b. It returns the number of
// bytes, or read's error; missing guest memory is EFAULT.
func (b Buffers) Fill(s *Scratch, size int64, read IO) (int, unix.Errno) {
	if b.mem == nil {
		return 0, 0
	}
	return b.mem.fill(s, b.pieces, size, read)
}

// Drain is Fill in the other direction: write takes up to size bytes from b.
func (b Buffers) Drain(s *Scratch, size int64, write IO) (int, unix.Errno) {
	if b.mem == nil {
		return 0, 0
	}
	return b.mem.drain(s, b.pieces, size, write)
}

// Head makes dst, which is reused, the first n bytes of b, or all if it has
// fewer, and does not change b. Dropping bytes from the result does not change
// b, and vice versa.
func (b Buffers) Head(dst Buffers, n int) Buffers {
	dst = Buffers{b.mem, dst.pieces[:0]}
	for _, p := range b.pieces {
		if n <= 0 {
			break
		}
		p = p.cut(0, min(uint64(n), p.len))
		dst.pieces = append(dst.pieces, p)
		n -= int(p.len)
	}
	return dst
}

// Drop drops the first n bytes of b, or all if it has fewer.
func (b *Buffers) Drop(n int) {
	left := uint64(max(n, 0))
	for left > 0 && len(b.pieces) > 0 {
		p := &b.pieces[0]
		if left < p.len {
			*p = p.cut(left, p.len-left)
			return
		}
		left -= p.len
		b.pieces = b.pieces[1:]
	}
}

// Chain is one descriptor chain: a buffer that the driver offered. Its memory
// is reused by the next Pop into it.
type Chain struct {
	// Head identifies the chain for Ring.Push.
	Head uint16
	// Out is what the driver wrote for the device, In what the device fills.
	Out, In Buffers

	out, in []piece // the backing of Out and In

	// For a taken chain: what keeps its memory mapped, and the epoch of its
	// queue.
	mem   *memory
	epoch uint64
}

func (c *Chain) reset(head uint16) {
	c.Head = head
	c.out, c.in = c.out[:0], c.in[:0]
}

// seal sets Out and In to the collected pieces.
func (c *Chain) seal(m *memory) {
	c.Out, c.In = Buffers{m, c.out}, Buffers{m, c.in}
}
