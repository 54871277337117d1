package publish

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/guest"
)

// patience bounds the wait of one step.
const patience = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// far makes connections, whose other ends are the guest's.
type far struct {
	ends  chan *net.UnixConn
	dials atomic.Int32
}

func (f *far) dial(context.Context) (guest.Conn, error) {
	f.dials.Add(1)
	host, end, err := socketPair()
	if err != nil {
		return nil, err
	}
	_ = end.SetDeadline(time.Now().Add(patience))
	f.ends <- end
	return host, nil
}

func socketPair() (a, b *net.UnixConn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "vsock")
		conn, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			return nil, nil, err
		}
		ends[i] = conn.(*net.UnixConn)
	}
	return ends[0], ends[1], nil
}

// next returns the guest's end of the next connection.
func (f *far) next(t *testing.T) *net.UnixConn {
	t.Helper()
	select {
	case end := <-f.ends:
		t.Cleanup(func() { _ = end.Close() })
		return end
	case <-time.After(patience):
		t.Fatal("the guest is not dialled")
		panic("not reached")
	}
}

func listen(t *testing.T, dial DialFunc) (s *Socket, path string) {
	t.Helper()
	return listenAt(t, Place{Path: filepath.Join(t.TempDir(), "api")}, dial)
}

// listenForMessages is like listen, for SOCK_SEQPACKET.
func listenForMessages(t *testing.T, dial DialFunc) (path string) {
	t.Helper()
	_, path = listenAt(t, Place{Path: filepath.Join(t.TempDir(), "rpc"), Seqpacket: true}, dial)
	return path
}

func listenAt(t *testing.T, at Place, dial DialFunc) (s *Socket, path string) {
	t.Helper()
	s, err := Listen(t.Context(), at, dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if info, err := os.Stat(at.Path); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, %v", info, err)
	}
	return s, at.Path
}

func connect(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	return connectBy(t, "unix", path)
}

func connectBy(t *testing.T, network, path string) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix(network, nil, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// passes sends text and an end of file from one end, and checks that both
// arrive at the other.
func passes(t *testing.T, from, to *net.UnixConn, text string) {
	t.Helper()
	go func() {
		_, _ = io.WriteString(from, text)
		_ = from.CloseWrite()
	}()
	if got, err := io.ReadAll(to); err != nil || string(got) != text {
		t.Errorf("%d bytes of %d came, %v", len(got), len(text), err)
	}
}

func TestConnection(t *testing.T) {
	f := &far{ends: make(chan *net.UnixConn, 1)}
	_, path := listen(t, f.dial)
	for range 2 {
		client := connect(t, path)
		end := f.next(t)
		passes(t, client, end, strings.Repeat("request", 50_000))
		passes(t, end, client, strings.Repeat("answer", 50_000)) // after the client's half-close
	}
}

// Messages keep their boundaries: at the guest's end each is preceded by its
// length.
func TestMessages(t *testing.T) {
	f := &far{ends: make(chan *net.UnixConn, 1)}
	path := listenForMessages(t, f.dial)
	if _, err := net.Dial("unix", path); !errors.Is(err, unix.EPROTOTYPE) {
		t.Errorf("a connect of another type: %v", err)
	}
	client := connectBy(t, "unixpacket", path)
	end := f.next(t)
	for _, message := range []string{"one", "two"} {
		if _, err := io.WriteString(client, message); err != nil {
			t.Fatal(err)
		}
	}
	_ = client.CloseWrite()
	if got, err := io.ReadAll(end); err != nil || string(got) != "\x00\x00\x00\x03one\x00\x00\x00\x03two" {
		t.Errorf("the guest reads %q, %v", got, err)
	}
	if _, err := io.WriteString(end, "\x00\x00\x00\x06answer\x00\x00\x00\x01s"); err != nil {
		t.Fatal(err)
	}
	_ = end.Close()
	buf := make([]byte, 100)
	for _, want := range []string{"answer", "s", ""} {
		if n, err := client.Read(buf); string(buf[:n]) != want || err != nil && (want != "" || !errors.Is(err, io.EOF)) {
			t.Errorf("the client reads %q, %v, want %q", buf[:n], err, want)
		}
	}
}

// A guest that announces a message too long loses its connection, and the next
// is served.
func TestLongMessage(t *testing.T) {
	f := &far{ends: make(chan *net.UnixConn, 1)}
	path := listenForMessages(t, f.dial)
	for range 2 {
		client := connectBy(t, "unixpacket", path)
		end := f.next(t)
		if _, err := io.WriteString(end, "\x00\x10\x00\x00"); err != nil {
			t.Fatal(err)
		}
		_ = client.CloseWrite() // the guest's end reads it, or that the connection is gone
		if _, err := io.ReadAll(end); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the guest's end is open: %v", err)
		}
		_ = end.Close()
		if n, err := client.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the client reads %d bytes, %v", n, err)
		}
	}
}

// A connection that the guest refuses ends immediately, and the next one is
// still tried.
func TestRefused(t *testing.T) {
	_, path := listen(t, func(ctx context.Context) (guest.Conn, error) {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("dialled without a limit")
		}
		return nil, errors.New("no listener")
	})
	for range 2 {
		if n, err := connect(t, path).Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("read %d bytes, %v", n, err)
		}
	}
}

func TestMostConnections(t *testing.T) {
	f := &far{ends: make(chan *net.UnixConn, maxConnections+1)}
	_, path := listen(t, f.dial)
	var clients []*net.UnixConn
	for range maxConnections {
		clients = append(clients, connect(t, path))
		f.next(t)
	}
	if n, err := connect(t, path).Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("one too many reads %d bytes, %v", n, err)
	}
	if n := f.dials.Load(); n != maxConnections {
		t.Errorf("%d dials", n)
	}
	_ = clients[0].Close() // makes room, a moment later
	for deadline := time.Now().Add(patience); ; {
		client := connect(t, path)
		_ = client.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, err := client.Read(make([]byte, 1))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break // it is open
		}
		if time.Now().After(deadline) {
			t.Fatal("there is no room after a connection has ended")
		}
	}
}

// Close ends what is open and what is being dialled, and removes the file.
func TestClose(t *testing.T) {
	f := &far{ends: make(chan *net.UnixConn, 1)}
	dialling := make(chan struct{})
	hang := atomic.Bool{}
	s, path := listen(t, func(ctx context.Context) (guest.Conn, error) {
		if hang.Load() {
			close(dialling)
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return f.dial(ctx)
	})
	client := connect(t, path)
	end := f.next(t)
	hang.Store(true)
	waiting := connect(t, path)
	<-dialling
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for name, conn := range map[string]net.Conn{"client": client, "guest": end, "waiting": waiting} {
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s reads %d bytes, %v", name, n, err)
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

func TestListenRefuses(t *testing.T) {
	_, path := listen(t, new(far).dial)
	if _, err := Listen(t.Context(), Place{Path: path}, new(far).dial); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a path that is taken: %v", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the first one's file: %v", err)
	}
}
