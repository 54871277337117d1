package shimtest

import (
	"bytes"
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/katabox/katabox/shim/manager"
	"github.com/katabox/katabox/virtcontainers"
)

// waitsEnv names a file that gets a byte for each Wait that comes to a shim.
const waitsEnv = "KATABOX_TEST_WAITS"

// Waits counts the calls of Wait that have come to the shims of a test.
type Waits struct{ file string }

// CountWaits has the shims that are started from now on count the calls of Wait.
func CountWaits(t *testing.T) Waits {
	t.Helper()
	w := Waits{t.TempDir() + "/waits"}
	t.Setenv(waitsEnv, w.file)
	return w
}

// Await waits until a number of calls have come.
func (w Waits) Await(t *testing.T, calls int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		came, _ := os.ReadFile(w.file)
		if len(came) >= calls {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d calls of Wait have come, want %d", len(came), calls)
		}
	}
}

// serve is manager.Serve, which counts the calls of Wait if the environment says so.
func serve(ctx context.Context, p *manager.Params, platform virtcontainers.Platform) error {
	file := os.Getenv(waitsEnv)
	if file == "" {
		return manager.Serve(ctx, p, platform)
	}
	const socketFD = 3 // manager.Serve's
	l, err := manager.Listener(os.NewFile(socketFD, "shim socket"))
	if err != nil {
		return err
	}
	return manager.EndLoggers(ctx, p, manager.ServeOn(ctx, p, platform, countingListener{l, file}))
}

// countingListener counts the calls of Wait on its connections.
type countingListener struct {
	net.Listener
	file string
}

// Accept implements net.Listener.
func (l countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return countingConn{conn, l.file}, err
}

type countingConn struct {
	net.Conn
	file string
}

// waitCall is the method in a request of ttrpc: field 2 of its message.
var waitCall = []byte("\x12\x04Wait")

// Read implements net.Conn. The server serves a request that it has read, whatever
// becomes of the connection.
func (c countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if calls := bytes.Count(b[:n], waitCall); calls > 0 {
		if failed := c.note(calls); failed != nil {
			return n, failed
		}
	}
	return n, err
}

func (c countingConn) note(calls int) error {
	f, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(make([]byte, calls))
	return err
}
