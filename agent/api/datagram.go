package api

import (
	"encoding/binary"
	"fmt"
	"io"
)

// MaxDatagram is the length of the longest datagram that is forwarded, in
// bytes. It is the most that DNS servers send over UDP in practice (RFC 6891,
// section 6.2.5).
const MaxDatagram = 4 << 10

// Datagram is a query from the guest, or the answer to one.
type Datagram struct {
	// ID is the query's, chosen by the agent; the answer has the same.
	ID uint32
	// Data is 1 to MaxDatagram bytes.
	Data []byte
}

// datagramHeader is the length of what precedes the data: ID and the data's
// length, big-endian.
const datagramHeader = 4 + 2

// WriteDatagram writes d in a single Write.
func WriteDatagram(w io.Writer, d Datagram) error {
	if len(d.Data) == 0 || len(d.Data) > MaxDatagram {
		return fmt.Errorf("write datagram: it has %d bytes, want 1 to %d", len(d.Data), MaxDatagram)
	}
	buf := make([]byte, datagramHeader, datagramHeader+len(d.Data))
	binary.BigEndian.PutUint32(buf, d.ID)
	binary.BigEndian.PutUint16(buf[4:], uint16(len(d.Data)))
	if _, err := w.Write(append(buf, d.Data...)); err != nil {
		return fmt.Errorf("write datagram: %w", err)
	}
	return nil
}

// ReadDatagram reads what WriteDatagram wrote. It fails with io.EOF at the end
// of the stream, and reads no byte beyond the datagram.
func ReadDatagram(r io.Reader) (Datagram, error) {
	var head [datagramHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Datagram{}, fmt.Errorf("read datagram: %w", err)
	}
	n := binary.BigEndian.Uint16(head[4:])
	if n == 0 || n > MaxDatagram {
		return Datagram{}, fmt.Errorf("read datagram: %d bytes announced, want 1 to %d", n, MaxDatagram)
	}
	d := Datagram{ID: binary.BigEndian.Uint32(head[:]), Data: make([]byte, n)}
	if _, err := io.ReadFull(r, d.Data); err != nil {
		return Datagram{}, fmt.Errorf("read datagram of %d bytes: %w", n, err)
	}
	return d, nil
}
