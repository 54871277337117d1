package api

import (
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"
)

// A stdio connection (PortStream) starts with one frame each way, StreamOpen
// from the host and StreamOpened from the agent; everything after is the
// stream's bytes. stdin flows to the guest, and a half-close of the connection
// is the end of file; stdout and stderr flow to the host, and the guest closes
// when the last writer is gone. The transport provides backpressure. Guest.Park
// closes these connections, too; the host then opens others for the same streams. An
// output may come in frames instead (output.go).
//
// A forwarding connection (PortForward) starts with ForwardOpen from the host
// and ForwardOpened from the agent; everything after is the bytes of the TCP or
// UNIX connection, half-closes included; for SOCK_SEQPACKET each message is
// preceded by its length.
//
// A process cannot reset a vsock connection: to its peer each close reads as an
// orderly end. If the host asks for it (marked), and the agent agrees, the bytes of each
// direction are therefore cut into blocks. A block is a big-endian uint16 length, and
// that many bytes; the one of length 0 is the direction's orderly end. A
// connection that ends without it was reset. Package internal/relay has both sides of
// this.
//
// A reverse connection (PortReverse) starts with ReverseOpen from the host and
// ReverseOpened from the agent. What follows depends on the request:
//
//   - listen: an Incoming frame from the agent for each connection that was
//     made to the listener. The host takes it by its own connection, or
//     not at all. The listener ends with the connection that asked for it.
//   - take: the bytes of the connection that is taken, half-closes included, and
//     their ends marked if that was asked for.
//   - datagrams: queries from the agent and answers from the host, as
//     Datagrams (datagram.go).
//
// A debug connection (PortDebug) starts with DebugOpen from the host and DebugOpened
// from the agent. DebugInput and DebugOutput frames follow, until the process has
// ended. The end of the connection kills the process.
//
// The guest never opens a connection to the host: the host could not
// distinguish the agent from a process in a container that dials the same vsock
// port.
//
// A frame is a big-endian uint32 length and that many bytes of protobuf.

// MaxFrame is the length of the longest frame either side accepts, in bytes.
const MaxFrame = 4 << 10

// MaxDebugData is how much data a DebugInput or DebugOutput has at most, in bytes.
const MaxDebugData = 2 << 10

// WriteFrame writes m as one frame in a single Write.
func WriteFrame(w io.Writer, m proto.Message) error {
	body, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("marshal frame: %w", err)
	}
	if len(body) > MaxFrame {
		return fmt.Errorf("write frame: %d bytes, at most %d allowed", len(body), MaxFrame)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	if _, err := w.Write(append(frame, body...)); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

// ReadFrame reads one frame into m. It reads no byte beyond the frame, so the
// stream's bytes stay in r. It blocks until the frame has arrived: callers set
// a deadline on the connection.
func ReadFrame(r io.Reader, m proto.Message) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("read frame length: %w", err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > MaxFrame {
		return fmt.Errorf("read frame: %d bytes announced, at most %d allowed", n, MaxFrame)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return fmt.Errorf("read frame of %d bytes: %w", n, err)
	}
	if err := proto.Unmarshal(body, m); err != nil {
		return fmt.Errorf("decode frame: %w", err)
	}
	return nil
}
