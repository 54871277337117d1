package virtcontainers

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// HangingClose returns a file that is long to close, as one on a disk that hangs,
// until release: a connection that lingers because its peer does not read.
func HangingClose(t *testing.T) (file *os.File, release func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() // the file is another descriptor
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = peer.Close() })
	for err == nil {
		_ = conn.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		_, err = conn.Write(make([]byte, 1<<20))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).SetLinger(60); err != nil {
		t.Fatal(err)
	}
	if file, err = conn.(*net.TCPConn).File(); err != nil {
		t.Fatal(err)
	}
	return file, func() { _ = peer.Close() }
}
