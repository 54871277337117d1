package reverse

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guest"
)

var docker = netip.MustParseAddr("127.0.0.11")

// echoing answers datagrams and connections at port 53 of an address, in the
// thread's namespace, until the test ends.
func echoing(t *testing.T, at string) {
	udp, err := net.ListenPacket("udp4", at)
	if err != nil {
		t.Error(err)
		return
	}
	tcp, err := net.Listen("tcp4", at)
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { _, _ = udp.Close(), tcp.Close() })
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			if text := string(buf[:n]); text == "long" {
				_, _ = udp.WriteTo(make([]byte, api.MaxDatagram+1), from)
			} else if text != "silence" {
				_, _ = udp.WriteTo(buf[:n], from)
			}
		}
	}()
	go func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	}()
}

func TestResolver(t *testing.T) {
	path := space(t, func() { echoing(t, "127.0.0.11:53") })
	h := newGuest(t)
	r, err := OpenResolver(t.Context(), h.open, path, docker)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for range 2 {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	udp, control := h.next(), h.next()
	if udp.what.GetDatagrams() != "127.0.0.11:53" || control.what.GetListen().GetTcp() != "127.0.0.11:53" {
		t.Errorf("opened %v and %v", udp.what, control.what)
	}
	asked := map[uint32]string{}
	for i := range uint32(2 * maxIdle) {
		asked[i] = strings.Repeat("q", int(i+1))
	}
	for _, d := range []string{"silence", "long"} { // they do not prevent other answers
		_ = api.WriteDatagram(udp.conn, api.Datagram{ID: 1000, Data: []byte(d)})
	}
	for id, text := range asked {
		if err := api.WriteDatagram(udp.conn, api.Datagram{ID: id, Data: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	for range len(asked) {
		answer, err := api.ReadDatagram(udp.conn)
		if err != nil || string(answer.Data) != asked[answer.ID] {
			t.Fatalf("answer %d: %q, %v", answer.ID, answer.Data, err)
		}
	}
	announce(t, control.conn, 1)
	stream := h.next().conn
	_, _ = io.WriteString(stream, "stream")
	_ = stream.CloseWrite()
	if got, err := io.ReadAll(stream); err != nil || string(got) != "stream" {
		t.Errorf("%q, %v", got, err)
	}
}

// A connection that ends is followed by another.
func TestQueriesGoOn(t *testing.T) {
	path := space(t, func() { echoing(t, "127.0.0.11:53") })
	h := newGuest(t)
	r, err := OpenResolver(t.Context(), h.open, path, docker)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	first, _ := h.next(), h.next()
	_ = first.conn.Close()
	second := h.next()
	if second.what.GetDatagrams() != "127.0.0.11:53" {
		t.Fatalf("opened %v", second.what)
	}
	if err := api.WriteDatagram(second.conn, api.Datagram{ID: 1, Data: []byte("again")}); err != nil {
		t.Fatal(err)
	}
	if answer, err := api.ReadDatagram(second.conn); err != nil || answer.ID != 1 || string(answer.Data) != "again" {
		t.Errorf("answer %d: %q, %v", answer.ID, answer.Data, err)
	}
}

// A guest that sends queries without end and reads no answers only exhausts its
// own limits.
func TestQueriesAreBounded(t *testing.T) {
	path := space(t, func() { echoing(t, "127.0.0.11:53") })
	h := newGuest(t)
	r, err := OpenResolver(t.Context(), h.open, path, docker)
	if err != nil {
		t.Fatal(err)
	}
	udp := h.next().conn
	for range 4 * maxQueries {
		if err := api.WriteDatagram(udp, api.Datagram{ID: 1, Data: []byte("silence")}); err != nil {
			t.Fatal(err)
		}
	}
	if files, err := os.ReadDir("/proc/self/fd"); err != nil || len(files) > maxQueries+64 {
		t.Errorf("%d descriptors, %v", len(files), err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestNoResolver(t *testing.T) {
	path := space(t, func() { echoing(t, "127.0.0.1:53") })
	for _, test := range []struct {
		addr      string
		namespace string
		kind      func(error) bool
	}{
		{"127.0.0.11", path, errdefs.IsNotFound},
		{"127.0.0.11", "/nowhere", errdefs.IsNotFound},
		{"127.0.0.11", "/proc/self/ns/net", errdefs.IsInvalidArgument},
		{"10.0.0.1", path, errdefs.IsInvalidArgument},
		{"::1", path, errdefs.IsInvalidArgument},
	} {
		_, err := OpenResolver(t.Context(), func(context.Context, *api.ReverseOpen) (guest.Conn, error) {
			t.Error("the guest was asked")
			return nil, errInjected
		}, test.namespace, netip.MustParseAddr(test.addr))
		if err == nil || !test.kind(err) {
			t.Errorf("%s in %s: %v", test.addr, test.namespace, err)
		}
	}
	_, err := OpenResolver(t.Context(), func(context.Context, *api.ReverseOpen) (guest.Conn, error) { return nil, errInjected }, path, netip.MustParseAddr("127.0.0.1"))
	if !errors.Is(err, errInjected) {
		t.Errorf("a guest that refuses: %v", err)
	}
}

const table = `   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  101: 0B00007F:8A1B 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0000000000000000 0
  102: 0100007F:0035 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 2 0000000000000000 0
`

func TestInTable(t *testing.T) {
	for _, test := range []struct {
		table, addr, state string
		want               bool
	}{
		{table, "127.0.0.11", "", true},
		{table, "127.0.0.11", tcpListen, false},
		{table, "127.0.0.1", tcpListen, true},
		{table, "127.0.0.12", "", false},
		{"", "127.0.0.11", "", false},
		{"head\n 1: 00000000:0035 00000000:0000 07\n", "127.0.0.53", "", true},
		{"head\n 1: 00000000:0036 00000000:0000 07\n", "127.0.0.53", "", false},
	} {
		got, err := inTable(strings.NewReader(test.table), netip.MustParseAddr(test.addr), test.state)
		if err != nil || got != test.want {
			t.Errorf("%s in state %q: %v, %v, want %v in\n%s", test.addr, test.state, got, err, test.want, test.table)
		}
	}
	for _, bad := range []string{"", "0B00007F", "0B00007F:", "0B00007F:12345", "xx00007F:0035", "00000000000000000000000001000000:0035"} {
		if a, ok := parseLocal(bad); ok {
			t.Errorf("%q is %v", bad, a)
		}
	}
}

func FuzzInTable(f *testing.F) {
	f.Add(table)
	f.Fuzz(func(t *testing.T, text string) {
		found, err := inTable(strings.NewReader(text), docker, "")
		if found && (err != nil || !slices.ContainsFunc(strings.Fields(text), func(w string) bool {
			return strings.HasSuffix(w, ":0035") || strings.Contains(strings.ToUpper(w), "0B00007F:")
		})) {
			t.Errorf("found in %q, %v", text, err)
		}
	})
}
