package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"net"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// lengths are the false lengths of messages, by the end of the lie's name.
var lengths = map[string]func(uint32) uint32{
	"-short": func(n uint32) uint32 { return n / 2 },
	"-long":  func(n uint32) uint32 { return n + 1000 },
	"-zero":  func(uint32) uint32 { return 0 },
	"-huge":  func(uint32) uint32 { return math.MaxUint32 },
}

// falseLengths is a listener whose connections send messages with false
// lengths once a container runs.
type falseLengths struct {
	net.Listener
	from   <-chan struct{}
	change func(uint32) uint32
	// stream is set for stdio connections, whose first write is a frame. If
	// not, each message is one of ttrpc.
	stream bool
	told   func()
}

// withLengths returns l, or a listener with the false lengths of a lie whose
// name begins with kind.
func (l *liar) withLengths(p net.Listener, kind string) net.Listener {
	rest, ok := strings.CutPrefix(l.lie, kind)
	if change := lengths[rest]; ok && change != nil {
		return &falseLengths{Listener: p, from: l.started, change: change, stream: kind == "stream", told: l.toldOnce}
	}
	return p
}

// Accept implements net.Listener.
func (f *falseLengths) Accept() (net.Conn, error) {
	conn, err := f.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &falseConn{Conn: conn, falseLengths: f}, nil
}

// rpcHeader is the length of ttrpc's header. A header, of both protocols,
// begins with the length of the rest, big-endian.
const rpcHeader = 10

// falseConn changes lengths on their way to the host. It has one writer.
type falseConn struct {
	net.Conn
	*falseLengths

	left  int // bytes of the current message that are still to be written
	bytes bool
}

// CloseWrite keeps half-closes possible, as with the connection itself.
func (c *falseConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Conn.Close()
}

// Write implements net.Conn. A message, and a frame, begins with a write: ttrpc
// flushes its buffer after each.
func (c *falseConn) Write(p []byte) (int, error) {
	switch {
	case c.bytes || c.left > 0:
		c.left -= len(p)
		return c.Conn.Write(p)
	case c.stream:
		c.bytes = true
		return len(p), c.send(opened())
	}
	c.left = rpcHeader + int(binary.BigEndian.Uint32(p)) - len(p)
	return len(p), c.send(p)
}

// send writes the beginning of a message, with a false length once a container
// runs.
func (c *falseConn) send(p []byte) error {
	select {
	case <-c.from:
		p = bytes.Clone(p)
		binary.BigEndian.PutUint32(p, c.change(binary.BigEndian.Uint32(p)))
		c.told()
	default:
	}
	_, err := c.Conn.Write(p)
	return err
}

// opened is a frame that opens a stream, with a field that hosts do not know, so
// that it has a length to lie about.
func opened() []byte {
	body := protowire.AppendString(protowire.AppendTag(nil, 100, protowire.BytesType), strings.Repeat("u", 100))
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// oddLines are the lines of a log that has no useful one.
func oddLines() []byte {
	var out bytes.Buffer
	out.WriteString(strings.Repeat("long", 1<<18) + "\n")
	out.WriteString(strings.Repeat("\n", 4096))
	out.WriteString(strings.Repeat("\x00", 20<<10) + "\n")
	out.WriteString("{" + strings.Repeat(`"name":{"a":[`, 1000) + "\n")
	return out.Bytes()
}
