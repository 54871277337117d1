package vhostuser

// Buffers is a run of guest memory in pieces. The guest may change the bytes at
// any time, so anything that must be stable is copied first. It is valid only
// within the Queue.Do that made it, or until Queue.Return of its chain.
type Buffers [][]byte

// Len returns the number of bytes left. It takes time proportional to the
// number of pieces.
func (b Buffers) Len() uint64 {
	var n uint64
	for _, piece := range b {
		n += uint64(len(piece))
	}
	return n
}

// CopyTo copies from the front of b to p until either ends, drops the copied
// bytes from b, and returns their number.
func (b *Buffers) CopyTo(p []byte) int {
	return b.each(len(p), func(piece []byte, done int) int { return copy(p[done:], piece) })
}

// CopyFrom copies p to the front of b until either ends, drops the written
// bytes from b, and returns their number.
func (b *Buffers) CopyFrom(p []byte) int {
	return b.each(len(p), func(piece []byte, done int) int { return copy(piece, p[done:]) })
}

// each moves at most n bytes piece by piece.
func (b *Buffers) each(n int, move func(piece []byte, done int) int) int {
	done := 0
	for done < n && len(*b) > 0 {
		k := move((*b)[0], done)
		done += k
		if k < len((*b)[0]) {
			(*b)[0] = (*b)[0][k:]
			break
		}
		*b = (*b)[1:]
	}
	return done
}

// Chain is one descriptor chain: a buffer that the driver offered. Its memory
// is reused by the next Pop into it.
type Chain struct {
	// Head identifies the chain for Ring.Push.
	Head uint16
	// Out is what the driver wrote for the device, In what the device fills.
	Out, In Buffers

	out, in [][]byte // the backing of Out and In

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
func (c *Chain) seal() {
	c.Out, c.In = c.out, c.in
}

// Head appends to dst the pieces of b's first n bytes, or all if it has fewer,
// and does not change b. Dropping bytes from the result does not change b, and
// vice versa.
func (b Buffers) Head(dst Buffers, n int) Buffers {
	for _, piece := range b {
		if n <= 0 {
			break
		}
		piece = piece[:min(n, len(piece))]
		dst = append(dst, piece)
		n -= len(piece)
	}
	return dst
}

// Drop drops the first n bytes of b, or all if it has fewer.
func (b *Buffers) Drop(n int) {
	b.each(n, func(piece []byte, done int) int { return min(len(piece), n-done) })
}
