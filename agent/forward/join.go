package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// block is what is buffered each way, in bytes.
	block = 16 << 10
	// lastWords is how long a side that takes no more bytes may still send:
	// what it sent before is on its way, but a side that does neither must
	// not be kept.
	lastWords = 5 * time.Second
	// watchInterval is how often a host that sends no more is asked for a
	// sign of life.
	watchInterval = time.Second
)

// halfCloser is a connection whose writing end can be closed alone: a vsock,
// TCP or UNIX one.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// join passes bytes both ways until both ends are done, one is lost or ctx is
// done; the caller closes both. After the host's end of file it asks every
// interval whether the host is still there.
func join(ctx context.Context, host halfCloser, port *net.TCPConn, interval time.Duration) error {
	hangUp := func() {
		// The server in the guest learns by a reset that this was no orderly
		// end.
		_ = port.SetLinger(0)
		_ = port.Close()
		_ = host.Close()
	}
	defer context.AfterFunc(ctx, hangUp)()
	var toPort, toHost error
	answered := make(chan struct{})
	var directions sync.WaitGroup
	directions.Go(func() {
		if toPort = copyHalf(port, host); toPort == nil {
			toPort = watch(host, interval, answered)
		}
		if errors.Is(toPort, errLost) {
			hangUp()
		}
	})
	directions.Go(func() {
		defer close(answered)
		if toHost = copyHalf(host, port); errors.Is(toHost, errLost) {
			hangUp()
		}
	})
	directions.Wait()
	return errors.Join(toPort, toHost)
}

// watch returns when done is closed, or with errLost when the host has closed
// its connection: a vsock's end reads as a half-close does, but then it takes
// no more bytes, and a write of none tells (net/vmw_vsock/af_vsock.c,
// vsock_connectible_sendmsg: EPIPE). Without that, a server in the guest that
// does not care for the end of its input would keep the connection for ever.
func watch(host net.Conn, interval time.Duration, done <-chan struct{}) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-tick.C:
		}
		if _, err := host.Write(nil); err != nil {
			return fmt.Errorf("host is gone: %w: %w", errLost, err)
		}
	}
}

// errLost says that the connection that was read from is no more.
var errLost = errors.New("connection lost")

// copyHalf passes what comes from one side on until its end, which it passes
// on too.
func copyHalf(to, from halfCloser) error {
	buf := make([]byte, block)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				_ = to.SetReadDeadline(time.Now().Add(lastWords))
				return fmt.Errorf("write: %w", err)
			}
		}
		if errors.Is(err, io.EOF) {
			if err := to.CloseWrite(); err != nil {
				return fmt.Errorf("close half: %w", err)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("read: %w: %w", errLost, err)
		}
	}
}
