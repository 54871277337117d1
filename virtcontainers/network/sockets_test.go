package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// station is where the other end of the pod's link is.
var station = map[string]string{"IPv4": "10.1.0.1", "IPv6": "fd01::1"}

// newStation is a pod whose link leads to a server at each of station's addresses
// and port 53, which answers datagrams and bytes of connections with the same.
func newStation(t *testing.T) *pod {
	t.Helper()
	p := newPod(t)
	(&pod{ns: p.host}).address(t, "eth0", station["IPv4"]+"/24", station["IPv6"]+"/64")
	settle(t, p.ns)
	settle(t, p.host)
	for _, addr := range station {
		must(t, p.host.do(func() error {
			udp, err := net.ListenPacket("udp", net.JoinHostPort(addr, "53"))
			if err != nil {
				return err
			}
			t.Cleanup(func() { udp.Close() })
			go echoDatagrams(udp)
			tcp, err := net.Listen("tcp", net.JoinHostPort(addr, "53"))
			if err != nil {
				return err
			}
			t.Cleanup(func() { tcp.Close() })
			go echoConnections(tcp)
			return nil
		}))
	}
	return p
}

func echoDatagrams(on net.PacketConn) {
	buf := make([]byte, 2048)
	for {
		n, from, err := on.ReadFrom(buf)
		if err != nil {
			return
		}
		on.WriteTo(buf[:n], from)
	}
}

func echoConnections(on net.Listener) {
	for {
		c, err := on.Accept()
		if err != nil {
			return
		}
		buf := make([]byte, 2048)
		n, _ := c.Read(buf)
		c.Write(buf[:n])
		c.Close()
	}
}

// dial connects in a namespace, as Docker's resolver does.
func dial(t *testing.T, ns *namespace, network, addr string) net.Conn {
	t.Helper()
	var conn net.Conn
	must(t, ns.do(func() (err error) {
		conn, err = net.DialTimeout(network, net.JoinHostPort(addr, "53"), 10*time.Second)
		return err
	}))
	t.Cleanup(func() { conn.Close() })
	return conn
}

// ask sends a question and expects the same as the answer.
func ask(t *testing.T, conn net.Conn, question string) {
	t.Helper()
	must(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	if _, err := conn.Write([]byte(question)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2048)
	n, err := conn.Read(buf)
	if string(buf[:n]) != question || err != nil {
		t.Fatalf("answer %q, %v", buf[:n], err)
	}
}

// joints are the ways to join a link by filters.
var joints = map[string]Options{"tcfilter": {}, "macvtap": {Model: Macvtap}}

// A process of the host that is in the namespace, as Docker's resolver is, reaches
// servers over the links that the guest has, and the guest gets nothing of that but
// the neighbours' answers.
func TestSocketsOfTheNamespace(t *testing.T) {
	t.Parallel()
	for name, opts := range joints {
		for family, addr := range station {
			for _, network := range []string{"udp", "tcp"} {
				t.Run(fmt.Sprintf("%s, %s, %s", name, family, network), func(t *testing.T) {
					t.Parallel()
					p := newStation(t)
					n, vm := p.open(t, opts), newMachine(t)
					must(t, n.Plug(t.Context(), vm))
					ask(t, dial(t, p.ns, network, addr), "example.com?")
					tap := vm.taps[vm.order[0]][0]
					got := frames(t, tap)
					delete(got, "")
					if want := map[string]bool{"answer": true}; !maps.Equal(got, want) {
						t.Errorf("the guest got %v, want %v", got, want)
					}
				})
			}
		}
	}
}

// frames reads all that the guest has received, and returns what it is: "answer"
// for a neighbour's, "TCP", "UDP", or "" for the rest.
func frames(t *testing.T, tap *os.File) map[string]bool {
	t.Helper()
	must(t, tap.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	kinds := make(map[string]bool)
	buf := make([]byte, 65536)
	for {
		n, err := tap.Read(buf)
		if err != nil {
			return kinds
		}
		kinds[kindOf(buf[vnetHeader:n])] = true
	}
}

func kindOf(frame []byte) string {
	packet := frame[14:]
	protocols := map[byte]string{unix.IPPROTO_TCP: "TCP", unix.IPPROTO_UDP: "UDP"}
	switch binary.BigEndian.Uint16(frame[12:]) {
	case unix.ETH_P_ARP:
		if packet[7] == 2 {
			return "answer"
		}
	case unix.ETH_P_IP:
		return protocols[packet[9]]
	case unix.ETH_P_IPV6:
		if packet[6] == unix.IPPROTO_ICMPV6 && packet[40] == 136 {
			return "answer"
		}
		return protocols[packet[6]]
	}
	return ""
}

// What belongs to no connected socket of the namespace is the guest's alone: a
// server of the host that listens there is not reached, and the host's stack answers
// nothing.
func TestGuestsPackets(t *testing.T) {
	t.Parallel()
	for name, opts := range joints {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newStation(t)
			listener := listenUDP(t, p.ns, 4000)
			n, vm := p.open(t, opts), newMachine(t)
			must(t, n.Plug(t.Context(), vm))
			tap := vm.taps[vm.order[0]][0]
			conn := dial(t, p.ns, "udp", station["IPv4"])
			ask(t, conn, "example.com?")
			mine := netip.MustParseAddrPort(conn.LocalAddr().String()).Port()
			w := packetSocket(t, p.host, "eth0", unix.SOCK_RAW, unix.ETH_P_IP)
			mac := linkOf(t, p.ns, "eth0").Attrs().HardwareAddr
			for _, d := range []struct {
				what     string
				from, to uint16
				change   func(packet []byte)
			}{
				{"no socket has it", 53, 4001, nil},
				{"a socket listens there", 53, 4000, nil},
				{"of another port", 54, mine, nil},
				{"to another port", 53, mine + 1, nil},
				{"a fragment", 53, mine, func(b []byte) { b[6] = 0x20 }},
				{"a later fragment", 53, mine, func(b []byte) { b[7] = 1 }},
				{"with options", 53, mine, func(b []byte) { b[0] = 0x46 }},
				{"another protocol", 53, mine, func(b []byte) { b[9] = unix.IPPROTO_ICMP }},
			} {
				f := unicast(mac, d.from, d.to, d.what)
				if d.change != nil {
					d.change(f[14:])
				}
				if _, err := w.Write(f); err != nil {
					t.Fatal(err)
				}
				expect(t, tap, vnetHeader+28, d.what)
			}
			for what, got := range map[string]interface {
				SetReadDeadline(t time.Time) error
				Read(b []byte) (int, error)
			}{"the listener": listener, "the connected socket": conn.(*net.UDPConn), "the sender": w} {
				must(t, got.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
				buf := make([]byte, 2048)
				if n, err := got.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s got %q, %v", what, buf[:n], err)
				}
			}
		})
	}
}

func listenUDP(t *testing.T, ns *namespace, port int) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	must(t, ns.do(func() (err error) {
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{Port: port})
		return err
	}))
	t.Cleanup(func() { conn.Close() })
	return conn
}

// unicast returns a frame with a UDP datagram from the station to the pod.
func unicast(to []byte, from, port uint16, text string) []byte {
	f := datagram(make([]byte, 6), port, text)
	copy(f, to)
	copy(f[26:], []byte{10, 1, 0, 1})
	f[34], f[35] = byte(from>>8), byte(from)
	var sum uint32
	for i := 14; i < 34; i += 2 {
		sum += uint32(f[i])<<8 | uint32(f[i+1])
	}
	sum = sum&0xffff + sum>>16
	f[24], f[25] = byte(^sum>>8), byte(^sum)
	return f
}

// The filter comes back if another program removes it alone.
func TestSocketsReturn(t *testing.T) {
	t.Parallel()
	p := newStation(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	must(t, n.Plug(t.Context(), vm))
	during := inventory(t, p.ns)
	index := linkOf(t, p.ns, "eth0").Attrs().Index
	must(t, p.ns.removeSockets(index, n.nics[index].made.Sockets))
	if differs, err := n.differs(t.Context()); !differs || err != nil {
		t.Errorf("without the filter: differs %v, %v", differs, err)
	}
	must(t, n.Plug(t.Context(), vm))
	if after := inventory(t, p.ns); after != during {
		t.Errorf("%s\nbefore:\n%s", after, during)
	}
	ask(t, dial(t, p.ns, "udp", station["IPv4"]), "example.com?")
}

// A shim that may not load programs joins the link all the same, without the filter.
func TestWithoutPrograms(t *testing.T) {
	t.Parallel()
	p := newStation(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	must(t, withoutBPF(func() error { return n.Plug(t.Context(), vm) }))
	index := linkOf(t, p.ns, "eth0").Attrs().Index
	if made := n.nics[index].made; made.Sockets != 0 || !n.told["sockets"] {
		t.Errorf("made %+v; it was logged: %v", made, n.told["sockets"])
	}
	ping(t, p, vm.taps[vm.order[0]][0], "eth0")
	if differs, err := n.differs(t.Context()); differs || err != nil {
		t.Errorf("nothing has changed: differs %v, %v", differs, err)
	}
}

// withoutBPF calls f on a thread that lacks CAP_BPF and CAP_SYS_ADMIN, which implies
// it.
func withoutBPF(f func() error) error {
	done := make(chan error)
	go func() { // the thread ends with the goroutine
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		err := unix.Capget(&header, &data[0])
		for _, c := range []uint{unix.CAP_BPF, unix.CAP_SYS_ADMIN} {
			data[c/32].Effective &^= 1 << (c % 32)
		}
		if err = errors.Join(err, unix.Capset(&header, &data[0])); err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func BenchmarkSocketProgram(b *testing.B) {
	program, err := ebpf.NewProgram(socketSpec())
	if err != nil {
		b.Skip(err)
	}
	defer program.Close()
	_, each, err := program.Benchmark(unicast(make([]byte, 6), 53, 4000, "example.com?"), max(b.N, 1), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(each.Nanoseconds()), "ns/packet")
}
