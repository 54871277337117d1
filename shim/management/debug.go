package management

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	// DebugPath is where a connection becomes one to the guest's debug console
	// (guest.OpenDebug), if the request has "Upgrade: " and DebugProtocol.
	DebugPath = "/debug-console"
	// DebugProtocol is the protocol that the request asks for.
	DebugProtocol = "katabox-debug"
	// debugTimeout bounds the wait for the guest.
	debugTimeout = 5 * time.Second
)

// upgrade joins a client's connection with what the handler opens, until either
// ends. The client must send nothing before the answer.
func upgrade(ctx context.Context, conn *net.UnixConn, r *request, h handler) error {
	if r.upgrade != DebugProtocol {
		return write(conn, fail(400, fmt.Sprintf("%s wants the header Upgrade: %s; kata-runtime debug sends it", r.path, DebugProtocol)))
	}
	openCtx, cancel := context.WithTimeout(ctx, h.timeout)
	far, err := h.upgrade(openCtx)
	cancel()
	if err != nil {
		return write(conn, failed(err))
	}
	if err := conn.SetDeadline(time.Now().Add(writeTimeout)); err != nil {
		return errors.Join(err, far.Close())
	}
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: %s\r\nConnection: Upgrade\r\n\r\n", DebugProtocol); err != nil {
		return errors.Join(err, far.Close())
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return errors.Join(err, far.Close())
	}
	return far.Join(ctx, conn)
}
