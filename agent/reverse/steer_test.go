package reverse

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// ownNetns puts the test's thread, and what it starts, into a network namespace
// with its loopback up: the host's may have other steering programs and
// servers.
func ownNetns(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skip(err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatal(err)
	}
}

// says returns the answer to a datagram at an address.
func says(t *testing.T, address string) string {
	t.Helper()
	c := dial(t, "udp", address)
	if _, err := c.Write([]byte("who?")); err != nil {
		return err.Error()
	}
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	if err != nil {
		return err.Error()
	}
	return string(buf[:n])
}

// answering answers every datagram with a word.
func answering(t *testing.T, word string) net.PacketConn {
	t.Helper()
	server, err := net.ListenPacket("udp4", "0.0.0.0:53")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 100)
		for {
			_, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteTo([]byte(word), from)
		}
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return server
}

// The resolver at port 53 of its address does not block port 53 of all
// addresses: a container's server can have that, and the resolver still works.
func TestServerBesideTheResolver(t *testing.T) {
	ownNetns(t)
	const resolver = "127.0.0.11:53"
	at := netip.MustParseAddrPort(resolver)
	socket, err := openUDP(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if socket.steering == nil {
		t.Skip("this kernel has no sk_lookup programs")
	}
	go func() {
		buf := make([]byte, 100)
		for {
			_, from, err := socket.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			socket.answer([]byte("resolver"), from)
		}
	}()
	answering(t, "server")
	for address, want := range map[string]string{resolver: "resolver", "127.0.0.1:53": "server"} {
		if got := says(t, address); got != want {
			t.Errorf("UDP %s: %q, want %q", address, got, want)
		}
	}

	l, remove, err := openTCP(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	server, err := net.Listen("tcp4", "0.0.0.0:53")
	if err != nil {
		t.Fatalf("a server beside the resolver: %v", err)
	}
	defer server.Close()
	for _, test := range []struct {
		address string
		at      net.Listener
	}{{resolver, l}, {"127.0.0.1:53", server}} {
		c := dial(t, "tcp4", test.address)
		got, err := test.at.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if got.RemoteAddr().String() != c.LocalAddr().String() || got.LocalAddr().String() != test.address {
			t.Errorf("TCP %s: accepted %v to %v, want %v", test.address, got.RemoteAddr(), got.LocalAddr(), c.LocalAddr())
		}
		_ = got.Close()
	}
	remove()
	_ = l.Close()
	dial(t, "tcp4", resolver)
	if got, err := server.Accept(); err != nil || got.LocalAddr().String() != resolver {
		t.Errorf("after the resolver's end: %v, %v", got, err)
	}
}

// Without steering the port is occupied while the resolver exists.
func TestNoSteeringForIPv6(t *testing.T) {
	at := netip.MustParseAddrPort("[::1]:53535")
	if s, err := openBeside(at); err == nil {
		t.Error("IPv6 is steered")
		_ = s.Close()
	}
	s, err := openUDP(t.Context(), at)
	if err != nil {
		t.Skip(err) // no IPv6 here
	}
	defer s.Close()
	if got := s.LocalAddr().String(); got != at.String() {
		t.Errorf("it receives at %s, want %s", got, at)
	}
}

// The largest answer arrives complete.
func TestLargeAnswer(t *testing.T) {
	ownNetns(t)
	at := netip.MustParseAddrPort("127.200.0.11:53") // an address that is negative as a number
	s, err := openUDP(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := dial(t, "udp4", at.String())
	if _, err := c.Write([]byte("q")); err != nil {
		t.Fatal(err)
	}
	_, from, err := s.ReadFromUDPAddrPort(make([]byte, 10))
	if err != nil {
		t.Fatal(err)
	}
	s.answer(make([]byte, api.MaxDatagram), from)
	buf := make([]byte, api.MaxDatagram+1)
	if n, err := c.Read(buf); err != nil || n != api.MaxDatagram {
		t.Errorf("%d bytes, %v, want %d", n, err, api.MaxDatagram)
	}
}
