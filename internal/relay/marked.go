package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

const (
	// markSize is the length of the header before each block: the block's length,
	// big-endian. The block of length 0 is the direction's orderly end.
	markSize = 2
	// maxBlock is the length of the longest block, in bytes.
	maxBlock = 1<<16 - 1
)

// Mark returns conn with each direction's orderly end marked in its bytes, for a
// transport whose connections cannot be reset, such as vsock. The peer does the
// same. CloseWrite sends the mark; a Close without it is a reset: the peer reads
// ECONNRESET where conn itself reads an end of file. Mark owns conn.
//
// A header goes out in the same Write as its block, and is read with the block before
// it if it has arrived by then. CloseWrite waits, as a Write does, for room at the peer.
// Mark drops conn's deadline of writes; one that is set later holds.
func Mark(conn HalfCloser) HalfCloser { return &marked{HalfCloser: &retried{HalfCloser: conn}} }

// marked has one reader and one writer at a time.
type marked struct {
	HalfCloser
	left  int            // bytes of the block that is being read
	head  [markSize]byte // the next header, as far as it has been read
	had   int            // how much of head that is
	ended bool           // the mark of the end was read
	out   []byte         // room for a header and a block
}

// Read implements net.Conn. It uses all of b as room.
func (m *marked) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for m.left == 0 {
		if m.ended {
			return 0, io.EOF
		}
		if err := m.next(); err != nil {
			return 0, err
		}
	}
	n, err := m.HalfCloser.Read(b[:min(len(b), m.left+markSize)])
	if n == 0 {
		return 0, cut(err)
	}
	if n > m.left {
		m.had = copy(m.head[:], b[m.left:n])
		n = m.left
	}
	m.left -= n
	return n, nil // an error stays, for the next Read
}

// next completes the next header.
func (m *marked) next() error {
	n, err := io.ReadFull(m.HalfCloser, m.head[m.had:])
	m.had += n
	if err != nil {
		return cut(err)
	}
	m.had = 0
	m.left = int(binary.BigEndian.Uint16(m.head[:]))
	m.ended = m.left == 0
	return nil
}

// cut returns the error for an end of file before the mark.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it ended without the mark of an orderly end: %w", unix.ECONNRESET)
	}
	return err
}

// Write implements net.Conn. A write of no bytes is conn's own: it marks nothing.
func (m *marked) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return m.HalfCloser.Write(nil)
	}
	written := 0
	for written < len(b) {
		n := min(len(b)-written, maxBlock)
		m.out = append(append(m.out[:0], make([]byte, markSize)...), b[written:written+n]...)
		if err := m.writeBlock(m.out); err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}

// writeBlock sends a block of at most maxBlock bytes, which begins after room for
// its header.
func (m *marked) writeBlock(b []byte) error {
	binary.BigEndian.PutUint16(b, uint16(len(b)-markSize))
	_, err := m.HalfCloser.Write(b)
	return err
}

// CloseWrite implements HalfCloser.
func (m *marked) CloseWrite() error {
	if err := m.writeBlock(make([]byte, markSize)); err != nil {
		return err
	}
	return m.HalfCloser.CloseWrite()
}
