package vhostuser

import "golang.org/x/sys/unix"

// piece is a run of bytes in one region of guest memory.
type piece struct {
	in       *segment
	off, len uint64
}

// cut returns n bytes of p from off on; the caller has checked that p has them.
func (p piece) cut(off, n uint64) piece { return piece{p.in, p.off + off, n} }

// access is how this process reaches guest memory. There are two
// implementations: mapped, for memory that the machine shares, and foreign, for
// memory that is private to the front end's process. Devices cannot tell which
// one serves them.
//
// The methods panic with a fault or a lost if memory is missing; guarded makes
// an error of that. The caller checks bounds.
type access interface {
	// read copies from the pieces to p, and write from p to the pieces, len(p)
	// bytes, which the pieces have.
	read(p []byte, from []piece)
	write(to []piece, p []byte)
	// view returns a piece's bytes: themselves, or a copy, in buf if it is long
	// enough. They may change, or not.
	view(p piece, buf *[]byte) []byte
	// front returns the available ring's index, and then the entry in a slot,
	// which is valid if the index says so.
	front(avail piece, slot uint64) (idx, head uint16)
	// usedIndex returns the used ring's index.
	usedIndex(used piece) uint16
	// publish writes what was pushed to the used ring, and then its index, with
	// flags of 0: the driver never sees the index before the entries.
	publish(r *Ring)
	// aligned reports whether index and flags of a ring can be accessed as a
	// whole.
	aligned(ring piece) bool
	// fill has read put up to size bytes into the pieces, and drain has write
	// take up to size bytes from them, with a buffer from s if need be. They
	// return the number of bytes, or an error if there are none.
	fill(s *Scratch, to []piece, size int64, read IO) (int, unix.Errno)
	drain(s *Scratch, from []piece, size int64, write IO) (int, unix.Errno)
	// unmap releases a region.
	unmap(s *segment) error
}

// IO is a vectored system call on a file: it moves bytes between the file and
// memory. done is how many bytes earlier calls of the same transfer have moved.
type IO func(iov []unix.Iovec, done int64) (int, unix.Errno)

// Scratch is memory for Fill and Drain. It is for one call at a time.
type Scratch struct {
	iov    []unix.Iovec
	bounce []byte
}

// maxIovecs is how many pieces one system call takes (IOV_MAX).
const maxIovecs = 1024
