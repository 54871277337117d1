package monitor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/katabox/katabox/shim/management"
)

// OpenDebug connects to the debug console of the pod's guest, for guest.OpenDebug.
// It wakes a pod that hibernates.
func (p Pod) OpenDebug(ctx context.Context) (net.Conn, error) {
	conn, err := p.openDebug(ctx)
	if err != nil {
		return nil, fmt.Errorf("debug pod %s: %w", p.ID, err)
	}
	return conn, nil
}

// debugTimeout bounds the wait for the shim, which waits for the guest.
const debugTimeout = 10 * time.Second

func (p Pod) openDebug(ctx context.Context) (net.Conn, error) {
	if err := p.ready(ctx); err != nil {
		return nil, err
	}
	conn, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := startDebug(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func startDebug(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(debugTimeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nUpgrade: %s\r\nConnection: Upgrade\r\n\r\n", management.DebugPath, management.DebugProtocol); err != nil {
		return err
	}
	// Nothing follows the answer before a frame is sent: the reader takes no more
	// than that.
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
	}
	return conn.SetDeadline(time.Time{})
}
