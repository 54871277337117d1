package fakeguest

import (
	"fmt"
	"io"
	"net"

	"github.com/katabox/katabox/agent/api"
)

// openForward answers a forwarding connection as a container would whose server,
// at every UNIX socket, says where it was reached ("ID:PATH "), and then sends
// back what it gets. Nobody listens at TCP ports.
func (a *Agent) openForward(conn *net.UnixConn) {
	defer a.hangUp(conn)
	var open api.ForwardOpen
	if err := api.ReadFrame(conn, &open); err != nil {
		return
	}
	answer := &api.ForwardOpened{}
	if socket := open.GetUnix(); socket == nil {
		answer.Error = "connection refused"
	} else if _, _, err := a.find(socket.GetContainerId(), ""); err != nil {
		answer.Error = err.Error()
	}
	if api.WriteFrame(conn, answer) != nil || answer.GetError() != "" {
		return
	}
	fmt.Fprintf(conn, "%s:%s ", open.GetUnix().GetContainerId(), open.GetUnix().GetPath())
	_, _ = io.Copy(conn, conn)
}
