package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// MaxPacket is the length of the longest message that Packets carries, in
// bytes: more than a SOCK_SEQPACKET socket sends with its default buffer
// (net.core.wmem_default, 208 KiB).
const MaxPacket = 256 << 10

// headerSize is the length of the header that Packets puts before each message:
// the message's length, big-endian.
const headerSize = 4

// Packets turns the messages of a SOCK_SEQPACKET connection into a stream of
// bytes, and such a stream back into messages, so that their boundaries survive a
// connection without any. It owns conn. It is an error if a message is longer
// than MaxPacket, or if a stream announces such a message or an empty one. An
// empty message reads as the end of file, as from the socket itself.
func Packets(conn *net.UnixConn) HalfCloser { return &packets{UnixConn: conn} }

// packets has one reader and one writer at a time.
type packets struct {
	*net.UnixConn
	in   []byte // room for a header and a message
	left []byte // the part of in that was not returned yet
	out  []byte // a header and a message, as far as they have been passed to Write
}

// Read implements net.Conn.
func (p *packets) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		if p.in == nil {
			p.in = make([]byte, headerSize+MaxPacket+1)
		}
		n, err := p.UnixConn.Read(p.in[headerSize:])
		if err != nil {
			return 0, err
		}
		if n > MaxPacket {
			return 0, fmt.Errorf("read message: it is longer than %d bytes: %w", MaxPacket, unix.EMSGSIZE)
		}
		binary.BigEndian.PutUint32(p.in, uint32(n))
		p.left = p.in[:headerSize+n]
	}
	n := copy(b, p.left)
	p.left = p.left[n:]
	return n, nil
}

// Write implements net.Conn. A write of no bytes reports whether the peer is
// connected: an empty message would be the end of file to it.
func (p *packets) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, p.check()
	}
	written := 0
	for written < len(b) {
		n, err := p.take(b[written:])
		if err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}

// take adds to the message that is being written, and sends it when it is
// complete.
func (p *packets) take(b []byte) (int, error) {
	if len(p.out) < headerSize {
		n := min(headerSize-len(p.out), len(b))
		p.out = append(p.out, b[:n]...)
		if size := p.announced(); len(p.out) == headerSize && (size == 0 || size > MaxPacket) {
			return n, fmt.Errorf("write message: the stream announces %d bytes, want 1 to %d: %w", size, MaxPacket, unix.EMSGSIZE)
		}
		return n, nil
	}
	missing := headerSize + int(p.announced()) - len(p.out)
	n := min(missing, len(b))
	p.out = append(p.out, b[:n]...)
	if n < missing {
		return n, nil
	}
	_, err := p.UnixConn.Write(p.out[headerSize:])
	p.out = p.out[:0]
	return n, err
}

// announced returns the length of the message that is being written.
func (p *packets) announced() uint32 {
	if len(p.out) < headerSize {
		return 0
	}
	return binary.BigEndian.Uint32(p.out)
}

// check fails with EPIPE once the peer has closed.
func (p *packets) check() error {
	raw, err := p.SyscallConn()
	if err != nil {
		return err
	}
	var pollErr error
	gone := false
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		_, pollErr = unix.Poll(fds, 0)
		gone = fds[0].Revents&unix.POLLHUP != 0
	})
	if gone {
		return unix.EPIPE
	}
	return errors.Join(err, pollErr)
}
