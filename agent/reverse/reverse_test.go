package reverse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// patience bounds the wait of one step.
const patience = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host opens connections to a server, as the shim does.
type host struct {
	t    *testing.T
	addr string
	// sockets is the server's SocketDir.
	sockets string
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir := t.TempDir()
	h := &host{t: t, addr: filepath.Join(dir, "vsock"), sockets: filepath.Join(dir, "sockets")}
	l, err := net.Listen("unix", h.addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- (&Server{SocketDir: h.sockets}).Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return h
}

// open sends what and returns the agent's refusal.
func (h *host) open(what *api.ReverseOpen) (*net.UnixConn, string) {
	h.t.Helper()
	conn, err := net.Dial("unix", h.addr)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	var opened api.ReverseOpened
	if err := errors.Join(api.WriteFrame(conn, what), api.ReadFrame(conn, &opened)); err != nil {
		h.t.Fatal(err)
	}
	return conn.(*net.UnixConn), opened.GetError()
}

func (h *host) mustOpen(what *api.ReverseOpen) *net.UnixConn {
	h.t.Helper()
	conn, refusal := h.open(what)
	if refusal != "" {
		h.t.Fatal(refusal)
	}
	return conn
}

// accept takes the next connection of a listener.
func (h *host) accept(control net.Conn) *net.UnixConn {
	h.t.Helper()
	var incoming api.Incoming
	if err := api.ReadFrame(control, &incoming); err != nil {
		h.t.Fatal(err)
	}
	return h.mustOpen(take(incoming.GetConnection()))
}

func take(id uint64) *api.ReverseOpen { return &api.ReverseOpen{What: &api.ReverseOpen_Take{Take: id}} }

func listenTCP(address string) *api.ReverseOpen {
	return &api.ReverseOpen{What: &api.ReverseOpen_Listen{Listen: &api.ReverseListen{Place: &api.ReverseListen_Tcp{Tcp: address}}}}
}

func listenUnix(u *api.UnixSocket) *api.ReverseOpen {
	return &api.ReverseOpen{What: &api.ReverseOpen_Listen{Listen: &api.ReverseListen{Place: &api.ReverseListen_Unix{Unix: u}}}}
}

func dial(t *testing.T, network, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// exchange sends a question and an end of file, then an answer and an end of
// file.
func exchange(t *testing.T, client, server net.Conn) {
	t.Helper()
	type half interface{ CloseWrite() error }
	_, err := io.WriteString(client, "question")
	if err := errors.Join(err, client.(half).CloseWrite()); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(server); err != nil || string(got) != "question" {
		t.Errorf("server read %q, %v", got, err)
	}
	_, err = io.WriteString(server, "answer")
	if err := errors.Join(err, server.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(client); err != nil || string(got) != "answer" {
		t.Errorf("client read %q, %v", got, err)
	}
}

// freeAddress returns a loopback address with a free port.
func freeAddress(t *testing.T, network string) string {
	t.Helper()
	if network == "udp" {
		c, err := net.ListenPacket("udp", "127.0.0.11:0")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.LocalAddr().String()
	}
	l, err := net.Listen("tcp", "127.0.0.11:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestTCP(t *testing.T) {
	h, address := newHost(t), freeAddress(t, "tcp")
	control := h.mustOpen(listenTCP(address))
	first, second := dial(t, "tcp", address), dial(t, "tcp", address)
	exchange(t, first, h.accept(control))
	exchange(t, second, h.accept(control))
	waits := dial(t, "tcp", address)
	if err := api.ReadFrame(control, &api.Incoming{}); err != nil {
		t.Fatal(err)
	}
	// When the host's connection ends, so do the listener and waiting
	// connections.
	_ = control.Close()
	if n, err := waits.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("what waited reads %d bytes, %v", n, err)
	}
	if _, err := net.Dial("tcp", address); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("connect after the end: %v", err)
	}
}

func TestUnix(t *testing.T) {
	for network, seqpacket := range map[string]bool{"unix": false, "unixpacket": true} {
		h := newHost(t)
		path := filepath.Join(h.sockets, "1")
		control := h.mustOpen(listenUnix(&api.UnixSocket{Path: path, Seqpacket: seqpacket, Mode: 0o2640, Uid: 7, Gid: 8}))
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || st.Mode != unix.S_IFSOCK|0o2640 || st.Uid != 7 || st.Gid != 8 {
			t.Errorf("%s: mode %o, owner %d:%d, %v", network, st.Mode, st.Uid, st.Gid, err)
		}
		client := dial(t, network, path)
		server := h.accept(control)
		if seqpacket {
			_, _ = io.WriteString(client, "abc")
			got := make([]byte, 7)
			if _, err := io.ReadFull(server, got); err != nil || string(got) != "\x00\x00\x00\x03abc" {
				t.Errorf("read %q, %v", got, err)
			}
		} else {
			exchange(t, client, server)
		}
		_ = control.Close()
		awaitGone(t, path)
	}
}

// awaitGone waits until the agent has removed a socket.
func awaitGone(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return
		}
	}
	t.Errorf("%s is left", path)
}

func TestRefusals(t *testing.T) {
	h := newHost(t)
	unixAt := func(path string) *api.ReverseOpen { return listenUnix(&api.UnixSocket{Path: path}) }
	datagrams := func(at string) *api.ReverseOpen {
		return &api.ReverseOpen{What: &api.ReverseOpen_Datagrams{Datagrams: at}}
	}
	for _, test := range []struct {
		open *api.ReverseOpen
		want string
	}{
		{&api.ReverseOpen{}, "want listen, take or datagrams"},
		{take(9), "does not wait"},
		{listenTCP("10.0.0.1:53"), "want a loopback address"},
		{listenTCP("127.0.0.11:0"), "want a loopback address"},
		{listenTCP("localhost:53"), "want a loopback address"},
		{datagrams("0.0.0.0:53"), "want a loopback address"},
		{&api.ReverseOpen{What: &api.ReverseOpen_Listen{}}, "want an address or a UNIX socket"},
		{unixAt("/etc/passwd"), "want a path in"},
		{unixAt(h.sockets + "/../x"), "want a path in"},
		{unixAt(h.sockets + "/a/b"), "want a path in"},
		{unixAt(h.sockets + "/" + strings.Repeat("x", 200)), "invalid argument"},
	} {
		conn, refusal := h.open(test.open)
		if !strings.Contains(refusal, test.want) {
			t.Errorf("%v: %q, want %q", test.open, refusal, test.want)
		}
		if got, err := io.ReadAll(conn); len(got) > 0 || err != nil {
			t.Errorf("after the refusal: %q, %v", got, err)
		}
	}
}

func TestDatagramsBothWays(t *testing.T) {
	h, address := newHost(t), freeAddress(t, "udp")
	conn := h.mustOpen(&api.ReverseOpen{What: &api.ReverseOpen_Datagrams{Datagrams: address}})
	var clients []net.Conn
	for i := range 3 {
		c := dial(t, "udp", address)
		clients = append(clients, c)
		fmt.Fprintf(c, "query %d", i)
	}
	for range clients {
		q, err := api.ReadDatagram(conn)
		if err != nil {
			t.Fatal(err)
		}
		q.Data = append([]byte("answer to "), q.Data...)
		// Each query gets one answer; an unsolicited one is dropped.
		for _, d := range []api.Datagram{{ID: 1 << 30, Data: []byte("x")}, q, q} {
			if err := api.WriteDatagram(conn, d); err != nil {
				t.Fatal(err)
			}
		}
	}
	buf := make([]byte, 100)
	for i, c := range clients {
		n, err := c.Read(buf)
		if want := fmt.Sprintf("answer to query %d", i); err != nil || string(buf[:n]) != want {
			t.Errorf("got %q, %v, want %q", buf[:n], err, want)
		}
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if n, err := c.Read(buf); err == nil {
			t.Errorf("a second answer: %q", buf[:n])
		}
	}
}

func TestQueriesAreBounded(t *testing.T) {
	q, now := newQueries(), time.Now()
	from := netip.MustParseAddrPort("127.0.0.1:9")
	for range maxQueries {
		if _, ok := q.add(from, now); !ok {
			t.Fatal("refused too early")
		}
	}
	if _, ok := q.add(from, now.Add(queryTimeout-1)); ok {
		t.Error("one too many was taken")
	}
	if _, ok := q.take(3); !ok {
		t.Error("query 3 is not there")
	}
	if _, ok := q.add(from, now); !ok {
		t.Error("an answered query keeps its place")
	}
	if _, ok := q.add(from, now.Add(queryTimeout)); !ok || len(q.open) > 2 {
		t.Errorf("expired queries keep their places: %d", len(q.open))
	}
}

// Connections that the host does not take keep those to another socket, perhaps
// another container's, from nothing.
func TestListenersWaitAlone(t *testing.T) {
	h := newHost(t)
	busy, idle := filepath.Join(h.sockets, "1"), filepath.Join(h.sockets, "2")
	h.mustOpen(listenUnix(&api.UnixSocket{Path: busy, Mode: 0o600}))
	control := h.mustOpen(listenUnix(&api.UnixSocket{Path: idle, Mode: 0o600}))
	for range maxWaiting + 2 {
		dial(t, "unix", busy)
		time.Sleep(time.Millisecond) // the agent accepts it: its backlog is as small
	}
	time.Sleep(100 * time.Millisecond) // until all wait
	client := dial(t, "unix", idle)
	_ = control.SetDeadline(time.Now().Add(takeTimeout / 4))
	exchange(t, client, h.accept(control))
}

// The connections of many sockets keep none from a further socket: the host bounds
// those of each.
func TestManyConnections(t *testing.T) {
	h := newHost(t)
	path := filepath.Join(h.sockets, "1")
	control := h.mustOpen(listenUnix(&api.UnixSocket{Path: path, Mode: 0o600}))
	for range maxOpen {
		dial(t, "unix", path)
		h.accept(control)
	}
	h.mustOpen(listenUnix(&api.UnixSocket{Path: filepath.Join(h.sockets, "2"), Mode: 0o600}))
}

// A connection that the host does not take is closed in time. It makes room when
// the host asks for it: a host that reads no announcements gets no more.
func TestNobodyTakesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w waiting
		slots := newSlots()
		began := time.Now()
		var clients []net.Conn
		for range maxWaiting {
			client, server := net.Pipe()
			clients = append(clients, client)
			if _, err := w.add(t.Context(), slots, halfPipe{server}); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range clients {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("a client reads %v", err)
			}
		}
		if took := time.Since(began); took != takeTimeout {
			t.Errorf("the clients wait for %v, want %v", took, takeTimeout)
		}
		_, server := net.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), takeTimeout)
		defer cancel()
		if id, err := w.add(ctx, slots, halfPipe{server}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("connection %d is announced as well: %v", id, err)
		}
		if _, ok := w.take(1); ok {
			t.Error("one that has waited too long is taken")
		}
		id, err := w.add(t.Context(), slots, halfPipe{server})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := w.take(id); !ok {
			t.Error("the last one does not wait")
		}
		_ = server.Close()
	})
}

// What waits, or has waited too long, is forgotten with its listener.
func TestListenerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w waiting
		ended, other := newSlots(), newSlots()
		for _, room := range []slots{ended, other} {
			_, server := net.Pipe()
			if _, err := w.add(t.Context(), room, halfPipe{server}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(takeTimeout + 1)
		client, server := net.Pipe()
		if _, err := w.add(t.Context(), ended, halfPipe{server}); err != nil {
			t.Fatal(err)
		}
		w.drop(ended)
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a client reads %v", err)
		}
		if len(w.conns) != 1 || len(other) != 1 {
			t.Errorf("%d connections are left, %d of the other listener", len(w.conns), len(other))
		}
	})
}

// halfPipe is an end of a net.Pipe for synctest.
type halfPipe struct{ net.Conn }

func (halfPipe) CloseWrite() error { return nil }
