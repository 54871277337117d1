package hostkey

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// lines is a listener of connections that a test makes.
type lines struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
}

func newLines(t *testing.T) *lines {
	done := make(chan struct{})
	l := &lines{make(chan net.Conn, 2*maxUnproven), done, sync.OnceFunc(func() { close(done) })}
	t.Cleanup(l.close)
	return l
}

func (l *lines) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *lines) Close() error   { l.close(); return nil }
func (l *lines) Addr() net.Addr { return &vsock.Addr{Port: 7} }

// line is the guest's end of a connection from a port of the host.
type line struct {
	net.Conn
	port uint32
}

func (l line) RemoteAddr() net.Addr { return &vsock.Addr{ContextID: vsock.Host, Port: l.port} }

// dial connects from a port, and sends text.
func (l *lines) dial(port uint32, text []byte) net.Conn {
	host, guest := net.Pipe()
	l.conns <- line{guest, port}
	_, _ = host.Write(text)
	return host
}

// answer returns what an offer of a key from a port was answered.
func (l *lines) answer(port uint32, key api.Key) byte {
	host := l.dial(port, key[:])
	defer host.Close()
	answer := make([]byte, 2)
	n, _ := io.ReadFull(host, answer)
	if n != 1 {
		return 0
	}
	return answer[0]
}

// isClosed reports whether the guest's end of a connection was closed.
func isClosed(conn net.Conn) bool {
	synctest.Wait()
	_ = conn.SetReadDeadline(time.Now())
	_, err := conn.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

// guest is a keeper that serves its key's port, one for calls and one other port.
type guest struct{ keys, calls, other *lines }

// run runs a test with a guest; nothing of that may be left.
func run(t *testing.T, test func(t *testing.T, g guest, calls, other net.Listener)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := guest{newLines(t), newLines(t), newLines(t)}
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		var k Keeper
		go func() { _ = k.Serve(ctx, g.keys) }()
		test(t, g, k.GuardCalls(g.calls), k.Guard(g.other))
	})
}

var mine, another = api.Key{1, 2, 3}, api.Key{1, 2, 4}

func accepts(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// The first key from a reserved port opens the guest for connections that begin
// with it, and only for these.
func TestKeyOpens(t *testing.T) {
	run(t, func(t *testing.T, g guest, calls, other net.Listener) {
		if early := g.other.dial(5000, mine[:]); !isClosed(early) {
			t.Error("a connection was accepted before there was a key")
		}
		if zero := g.other.dial(5000, make([]byte, api.KeyBytes)); !isClosed(zero) {
			t.Error("zeros were accepted before there was a key")
		}
		if a := g.keys.answer(api.ReservedPorts, mine); a != 0 {
			t.Errorf("a key from a port without privilege was answered %d", a)
		}
		for range 2 {
			if a := g.keys.answer(api.ReservedPorts-1, mine); a != api.KeyTaken {
				t.Fatalf("the key was answered %d", a)
			}
		}
		if a := g.keys.answer(3, another); a != api.KeyRefused {
			t.Errorf("another key was answered %d", a)
		}
		for _, l := range []*lines{g.calls, g.other} {
			if conn := l.dial(5001, another[:]); !isClosed(conn) {
				t.Error("a connection with another key was accepted")
			}
			short := l.dial(5002, mine[:10])
			time.Sleep(keyTimeout)
			if !isClosed(short) {
				t.Error("a part of the key was enough")
			}
		}
		for l, server := range map[*lines]net.Listener{g.calls: calls, g.other: other} {
			host := l.dial(5003, mine[:])
			conn := accepts(t, server)
			go func() { _, _ = io.WriteString(host, "x") }()
			time.Sleep(2 * keyTimeout)
			if b, err := io.ReadAll(io.LimitReader(conn, 1)); string(b) != "x" || err != nil {
				t.Errorf("after the key came %q, %v", b, err)
			}
		}
	})
}

// The key ends with the last connection for calls that began with it, also if the
// server does not close that; until then another one is refused.
func TestKeyEnds(t *testing.T) {
	run(t, func(t *testing.T, g guest, calls, other net.Listener) {
		if a := g.keys.answer(1, mine); a != api.KeyTaken {
			t.Fatalf("answered %d", a)
		}
		first := g.calls.dial(5000, mine[:])
		served := accepts(t, calls)
		go func() { _, _ = io.Copy(io.Discard, served) }()
		second := g.calls.dial(5001, mine[:])
		closes := accepts(t, calls)
		stays := g.other.dial(5002, mine[:])
		accepts(t, other)

		_, _ = second.Close(), closes.Close()
		_ = closes.Close()
		if a := g.keys.answer(1, another); a != api.KeyRefused {
			t.Errorf("another key was answered %d while there is a connection for calls", a)
		}
		offer := make(chan byte)
		go func() { offer <- g.keys.answer(1, another) }()
		time.Sleep(freeTimeout / 2)
		_ = first.Close()
		if a := <-offer; a != api.KeyTaken {
			t.Errorf("the next key was answered %d", a)
		}
		if old := g.other.dial(5000, mine[:]); !isClosed(old) {
			t.Error("the old key is still good")
		}
		_ = stays.Close()
	})
}

// A key that its owner offers again outlives the connection before.
func TestKeyIsOfferedAgain(t *testing.T) {
	run(t, func(t *testing.T, g guest, calls, other net.Listener) {
		for range 3 {
			if a := g.keys.answer(1, mine); a != api.KeyTaken {
				t.Fatalf("answered %d", a)
			}
			host := g.calls.dial(5000, mine[:])
			served := accepts(t, calls)
			if a := g.keys.answer(1, mine); a != api.KeyTaken {
				t.Fatalf("answered %d while it is in use", a)
			}
			_, _ = host.Close(), served.Close()
			next := g.calls.dial(5001, mine[:])
			served = accepts(t, calls)
			_, _ = next.Close(), served.Close()
			if old := g.other.dial(5000, mine[:]); !isClosed(old) {
				t.Error("the key did not end with its last connection")
			}
		}
	})
}

// Connections that send nothing keep no others waiting, and are bounded.
func TestSilentConnections(t *testing.T) {
	run(t, func(t *testing.T, g guest, _, other net.Listener) {
		if a := g.keys.answer(1, mine); a != api.KeyTaken {
			t.Fatalf("answered %d", a)
		}
		var silent []net.Conn
		for range maxUnproven - 1 {
			silent = append(silent, g.other.dial(5000, nil))
		}
		for range 3 {
			g.other.dial(5001, mine[:])
			accepts(t, other)
		}
		silent = append(silent, g.other.dial(5000, nil), g.other.dial(5000, nil))
		for i, conn := range silent {
			if closed := isClosed(conn); closed != (i == 0) {
				t.Fatalf("of %d silent connections number %d was ended: %v", len(silent), i, closed)
			}
		}
		g.other.dial(5001, mine[:])
		accepts(t, other)
		time.Sleep(keyTimeout)
		for _, conn := range silent {
			if !isClosed(conn) {
				t.Fatal("a silent connection was kept")
			}
		}
	})
}

// Connections that are not accepted yet end with the listener.
func TestListenerEnds(t *testing.T) {
	run(t, func(t *testing.T, g guest, _, other net.Listener) {
		if a := g.keys.answer(1, mine); a != api.KeyTaken {
			t.Fatalf("answered %d", a)
		}
		waits := g.other.dial(5000, mine[:])
		synctest.Wait()
		_ = other.Close()
		synctest.Wait()
		if _, err := other.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept: %v", err)
		}
		if !isClosed(waits) {
			t.Error("a connection outlived its listener")
		}
	})
}

// socketPair returns both ends of a connection with a descriptor each.
func socketPair(t *testing.T) (host, guest net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "socket")
		ends[i], err = net.FileConn(file)
		if err = errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ends[i].Close() })
	}
	return ends[0], ends[1]
}

// A burst of the host's own connections, whose keys have come by the time they are
// accepted, loses none, also if nothing reads them meanwhile.
func TestBurst(t *testing.T) {
	const burst = maxUnproven + 72
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	l := newLines(t)
	k := &Keeper{key: &mine, free: make(chan struct{})}
	var hosts []net.Conn
	for range burst {
		host, guest := socketPair(t)
		if _, err := host.Write(mine[:]); err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, host)
		l.conns <- guest
	}
	server := k.Guard(l)
	for range burst {
		accepted := make(chan net.Conn)
		go func() {
			conn, _ := server.Accept()
			accepted <- conn
		}()
		select {
		case <-accepted:
		case <-time.After(5 * time.Second):
			t.Fatal("a connection of the host was closed")
		}
	}
	for _, host := range hosts {
		_ = host.SetReadDeadline(time.Now())
		if _, err := host.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection of the host ended: %v", err)
		}
	}
}
