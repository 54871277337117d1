package fakeguest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/relay"
)

// openForward answers a forwarding connection like a container with an echo
// server at every UNIX socket: it first sends where it was reached ("ID:PATH
// "), then echoes what it gets; on SOCK_SEQPACKET, in messages. Nothing listens
// at TCP ports.
func (a *Agent) openForward(conn *net.UnixConn) {
	defer a.hangUp(conn)
	var open api.ForwardOpen
	if err := api.ReadFrame(conn, &open); err != nil {
		return
	}
	answer := &api.ForwardOpened{}
	socket := open.GetUnix()
	if socket == nil {
		socket = open.GetUnixpacket()
	}
	if socket == nil {
		answer.Error = "connection refused"
	} else if _, _, err := a.find(socket.GetContainerId(), ""); err != nil {
		answer.Error = err.Error()
	}
	answer.Marked = open.GetMarked()
	if api.WriteFrame(conn, answer) != nil || answer.GetError() != "" {
		return
	}
	var host relay.HalfCloser = conn
	if answer.GetMarked() {
		host = relay.Mark(conn)
	}
	greeting := fmt.Appendf(nil, "%s:%s ", socket.GetContainerId(), socket.GetPath())
	if open.GetUnixpacket() != nil {
		_ = binary.Write(host, binary.BigEndian, uint32(len(greeting))) // a broken connection ends the copying
	}
	_, _ = host.Write(greeting)
	if _, err := io.Copy(host, host); err == nil {
		_ = host.CloseWrite()
	}
}
