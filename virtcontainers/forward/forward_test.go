package forward

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/guest"
)

func TestWhatIsDialled(t *testing.T) {
	s := newSpace(t)
	s.forwarder(t, serving(t, echo))
	for _, test := range []struct{ connect, want string }{
		{"127.0.0.1:80", "127.0.0.1:80"},
		{"127.0.0.1:1", "127.0.0.1:1"},
		{"127.0.0.1:65535", "127.0.0.1:65535"},
		{"127.1.2.3:9", "127.1.2.3:9"},
		{"127.255.255.254:80", "127.255.255.254:80"},
		{"[::1]:80", "[::1]:80"},
		{"[::1]:65535", "[::1]:65535"},
		{"[::ffff:127.0.0.1]:80", "127.0.0.1:80"},
	} {
		if got := greeting(t, s.mustConnect(t, test.connect)); got != test.want {
			t.Errorf("connected to %s, dialled %s, want %s", test.connect, got, test.want)
		}
	}
}

// The Forwarder affects only TCP to loopback addresses.
func TestOthersAreUntouched(t *testing.T) {
	s := newSpace(t)
	s.forwarder(t, func(_ context.Context, address string) (guest.Conn, error) {
		t.Errorf("dialled %s", address)
		return nil, errors.New("unexpected")
	})
	s.wantRefused(t, outside+":80")
	host, err := net.Listen("tcp", "127.0.0.1:0") // in the namespace of the test
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", host.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	host.Close()
	if _, err := net.Dial("tcp", host.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the host's loopback: %v, want it refused", err)
	}
	s.in(func() {
		conn, err := net.Dial("udp", "127.0.0.1:80")
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("x"))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("UDP: %v, want it refused", err)
		}
	})
}

// A host process that listens on all addresses is reached on those that are not
// loopback.
func TestListenerInTheNamespace(t *testing.T) {
	s := newSpace(t)
	s.forwarder(t, serving(t, echo))
	var own net.Listener
	s.in(func() {
		var err error
		if own, err = net.Listen("tcp4", "0.0.0.0:80"); err != nil {
			t.Error(err)
		}
	})
	if own == nil {
		return
	}
	defer own.Close()
	if got := greeting(t, s.mustConnect(t, "127.0.0.1:80")); got != "127.0.0.1:80" {
		t.Errorf("loopback: dialled %s", got)
	}
	client := s.mustConnect(t, outside+":80")
	served, err := own.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	if got, want := served.RemoteAddr().String(), client.LocalAddr().String(); got != want {
		t.Errorf("accepted %s, want %s", got, want)
	}
}

func TestTwoNamespaces(t *testing.T) {
	first, second := newSpace(t), newSpace(t)
	say := func(what string) func(*net.UnixConn) {
		return func(c *net.UnixConn) { _, _ = io.WriteString(c, what) }
	}
	one := first.forwarder(t, serving(t, say("first")))
	second.forwarder(t, serving(t, say("second")))
	check := func(s *space, want string) {
		t.Helper()
		got, err := io.ReadAll(s.mustConnect(t, "127.0.0.1:80"))
		if err != nil || string(got) != "127.0.0.1:80\n"+want {
			t.Errorf("got %q, %v, want %s", got, err, want)
		}
	}
	check(first, "first")
	check(second, "second")
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	first.wantRefused(t, "127.0.0.1:80")
	check(second, "second")
}

func TestManyAtOnce(t *testing.T) {
	const many, size = 100, 64 << 10
	s := newSpace(t)
	s.forwarder(t, serving(t, echo))
	var all sync.WaitGroup
	for i := range many {
		conn := s.mustConnect(t, "127.0.0.1:80")
		all.Go(func() {
			greeting(t, conn)
			roundTrip(t, conn, int64(i), size)
		})
	}
	all.Wait()
}

func TestMuchBothWays(t *testing.T) {
	s := newSpace(t)
	s.forwarder(t, serving(t, echo))
	for _, address := range []string{"127.0.0.1:80", "[::1]:80"} {
		conn := s.mustConnect(t, address)
		greeting(t, conn)
		roundTrip(t, conn, 0, 1<<20)
	}
}

// roundTrip sends bytes and an end of file, and compares the echo.
func roundTrip(t *testing.T, conn *net.TCPConn, seed int64, size int) {
	t.Helper()
	sent := make([]byte, size)
	source := rand.New(rand.NewPCG(uint64(seed), 1))
	for i := range sent {
		sent[i] = byte(source.Uint32())
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() {
		_, err := conn.Write(sent)
		if err := errors.Join(err, conn.CloseWrite()); err != nil {
			t.Error(err)
		}
	})
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back, %v, want the %d that were sent", len(got), err, size)
	}
}

func TestOpenRefuses(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	if _, err := Open(t.Context(), none, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such file: %v", err)
	}
	for _, path := range []string{"/proc/self/ns/net", "/proc/thread-self/ns/net"} {
		if _, err := Open(t.Context(), path, nil); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{"/proc/self/ns/uts", os.DevNull} {
		if _, err := Open(t.Context(), path, nil); !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), "it is") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// The Forwarder does not end with the context of its Open.
func TestOutlivesItsContext(t *testing.T) {
	s := newSpace(t)
	ctx, cancel := context.WithCancel(t.Context())
	f, err := Open(ctx, s.path, serving(t, echo))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cancel()
	if got := greeting(t, s.mustConnect(t, "127.0.0.1:80")); got != "127.0.0.1:80" {
		t.Errorf("dialled %s", got)
	}
}

// The engine may set up lo after the pod's VM.
func TestLoopbackComesLater(t *testing.T) {
	s := newBareSpace(t)
	s.forwarder(t, serving(t, echo))
	s.loUp(t)
	for _, address := range []string{"127.0.0.1:80", "[::1]:80"} {
		if got := greeting(t, s.mustConnect(t, address)); got != address {
			t.Errorf("dialled %s, want %s", got, address)
		}
	}
}

func TestWithoutIPv6(t *testing.T) {
	s := newSpace(t)
	s.in(func() {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0); err != nil {
			t.Error(err)
		}
	})
	s.forwarder(t, serving(t, echo))
	if got := greeting(t, s.mustConnect(t, "127.0.0.1:80")); got != "127.0.0.1:80" {
		t.Errorf("dialled %s", got)
	}
}

// Connections to an exempt address stay in the namespace; all others go to the
// guest.
func TestExempt(t *testing.T) {
	s := newSpace(t)
	f := s.forwarder(t, serving(t, echo))
	var own net.Listener
	var err error
	s.in(func() { own, err = net.Listen("tcp4", "127.0.0.11:53") })
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if got := greeting(t, s.mustConnect(t, "127.0.0.11:53")); got != "127.0.0.11:53" {
		t.Errorf("before: dialled %s", got)
	}
	if err := f.Exempt(netip.MustParseAddr("127.0.0.11")); err != nil {
		t.Fatal(err)
	}
	s.mustConnect(t, "127.0.0.11:53")
	if conn, err := own.Accept(); err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
	s.wantRefused(t, "127.0.0.11:80")
	for _, address := range []string{"127.0.0.1:53", "127.0.0.12:53", "127.11.0.0:53"} {
		if got := greeting(t, s.mustConnect(t, address)); got != address {
			t.Errorf("connected to %s, dialled %s", address, got)
		}
	}
	for _, wrong := range []string{"10.0.0.1", "::1"} {
		if err := f.Exempt(netip.MustParseAddr(wrong)); !errdefs.IsInvalidArgument(err) {
			t.Errorf("exempt %s: %v", wrong, err)
		}
	}
}
