package vsock

import (
	"sync"

	"github.com/katabox/katabox/hypervisor/vhostuser"
)

// recvBuf holds a connection's received, unread data. It grows in steps up to
// what the guest was allowed to send, and holds no memory while it is empty. It
// has no lock.
type recvBuf struct {
	block *block
	start int // of the oldest byte
	len   int
}

// block is a buffer of one of the sizes in blockPools.
type block struct {
	data []byte
	pool *sync.Pool
}

// blockSizes are the sizes of a growing buffer; the last is the largest
// buf_alloc.
var blockSizes = [...]int{4 << 10, 16 << 10, 64 << 10, maxBufAlloc}

var blockPools [len(blockSizes)]sync.Pool

func newBlock(n int) *block {
	for i, size := range blockSizes {
		if n > size {
			continue
		}
		pool := &blockPools[i]
		if b, ok := pool.Get().(*block); ok {
			return b
		}
		return &block{data: make([]byte, size), pool: pool}
	}
	return nil
}

// fill copies n bytes of the guest's memory to the end. The caller has checked
// that src has them and that they fit within maxBufAlloc.
func (r *recvBuf) fill(src *vhostuser.Buffers, n int) {
	if n == 0 {
		return
	}
	r.reserve(n)
	data := r.block.data
	end := (r.start + r.len) % len(data)
	first := min(n, len(data)-end)
	src.CopyTo(data[end : end+first])
	src.CopyTo(data[:n-first])
	r.len += n
}

// reserve makes room for n more bytes.
func (r *recvBuf) reserve(n int) {
	if r.block != nil && r.len+n <= len(r.block.data) {
		return
	}
	bigger := newBlock(r.len + n)
	have := r.len
	r.read(bigger.data[:have])
	r.block, r.start, r.len = bigger, 0, have
}

// read moves bytes from the front to p and returns their number.
func (r *recvBuf) read(p []byte) int {
	n := min(len(p), r.len)
	if n == 0 {
		return 0
	}
	data := r.block.data
	first := copy(p[:n], data[r.start:])
	copy(p[first:n], data)
	r.start = (r.start + n) % len(data)
	r.len -= n
	if r.len == 0 {
		r.drop()
	}
	return n
}

// drop drops all data and frees the memory.
func (r *recvBuf) drop() {
	if r.block != nil {
		r.block.pool.Put(r.block)
	}
	*r = recvBuf{}
}
