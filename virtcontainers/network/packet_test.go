package network

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// testEtherType is one that no stack handles (IEEE 802 local experimental).
const testEtherType = 0x88b5

// frame returns a broadcast Ethernet frame.
func frame(src []byte, text string) []byte {
	f := append(bytes.Repeat([]byte{0xff}, 6), src...)
	f = binary.BigEndian.AppendUint16(f, testEtherType)
	return append(append(f, text...), make([]byte, 60)...)
}

// wire returns a packet socket on a link.
func wire(t *testing.T, ns *namespace, name string) *os.File {
	t.Helper()
	return packetSocket(t, ns, name, unix.SOCK_RAW, testEtherType)
}

// packetSocket returns a packet socket on a link for one EtherType.
func packetSocket(t *testing.T, ns *namespace, name string, kind int, etherType uint16) *os.File {
	t.Helper()
	var file *os.File
	index := linkOf(t, ns, name).Attrs().Index
	must(t, ns.do(func() error {
		proto := int(etherType>>8 | etherType&0xff<<8)
		fd, err := unix.Socket(unix.AF_PACKET, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
		if err != nil {
			return err
		}
		file = os.NewFile(uintptr(fd), name)
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(proto), Ifindex: index})
	}))
	t.Cleanup(func() { file.Close() })
	return file
}

// expect reads until a frame with the text arrives; each frame is preceded by
// skip bytes.
func expect(t *testing.T, from *os.File, skip int, text string) {
	t.Helper()
	firstOf(t, from, skip, text)
}

// firstOf is expect for several texts; it returns the one that comes first.
func firstOf(t *testing.T, from *os.File, skip int, texts ...string) string {
	t.Helper()
	must(t, from.SetReadDeadline(time.Now().Add(20*time.Second)))
	buf := make([]byte, 65536)
	for {
		n, err := from.Read(buf)
		if err != nil {
			t.Fatalf("no frame of %q: %v", texts, err)
		}
		for _, text := range texts {
			if n > skip+14 && bytes.HasPrefix(buf[skip+14:n], []byte(text)) {
				return text
			}
		}
	}
}

// vnetHeader is the length of struct virtio_net_hdr, a tap's default.
const vnetHeader = 10

// ping sends a frame out of the VM and one back.
func ping(t *testing.T, p *pod, tap *os.File, name string) {
	t.Helper()
	w := wire(t, p.host, name)
	mac := linkOf(t, p.ns, name).Attrs().HardwareAddr
	if _, err := tap.Write(append(make([]byte, vnetHeader), frame(mac, "out of the guest")...)); err != nil {
		t.Fatal(err)
	}
	expect(t, w, 0, "out of the guest")
	if _, err := w.Write(frame(linkOf(t, p.host, name).Attrs().HardwareAddr, "into the guest")); err != nil {
		t.Fatal(err)
	}
	expect(t, tap, vnetHeader, "into the guest")
}

func TestPacketsPass(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]Options{
		"tcfilter": {}, "macvtap": {Model: Macvtap}, "macvtap, rates": {Model: Macvtap, RxRate: 1e9, TxRate: 1e9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			p.veth(t, "eth1", "10.2.0.2/24")
			n, vm := p.open(t, opts), newMachine(t)
			must(t, n.Plug(t.Context(), vm))
			for i, name := range []string{"eth0", "eth1"} {
				ping(t, p, vm.taps[vm.order[i]][0], name)
			}
		})
	}
}

// dhcpSocket is one like CNI's dhcp plugin has: it gets IPv4 packets after the
// link's filters.
func dhcpSocket(t *testing.T, ns *namespace, name string) *os.File {
	t.Helper()
	return packetSocket(t, ns, name, unix.SOCK_DGRAM, unix.ETH_P_IP)
}

// datagram returns a broadcast frame with a UDP datagram to a port.
func datagram(src []byte, port uint16, text string) []byte {
	f := append(bytes.Repeat([]byte{0xff}, 6), src...)
	f = binary.BigEndian.AppendUint16(f, unix.ETH_P_IP)
	length := uint16(28 + len(text))
	f = append(f, 0x45, 0, byte(length>>8), byte(length), 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0, 10, 1, 0, 1, 10, 1, 0, 2)
	f = binary.BigEndian.AppendUint16(f, 67)
	f = binary.BigEndian.AppendUint16(f, port)
	f = binary.BigEndian.AppendUint16(f, length-20)
	return append(append(f, 0, 0), text...)
}

// A DHCP answer reaches the guest and a client on the host; nothing else reaches
// the host.
func TestDHCPAnswers(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]Options{"tcfilter": {}, "macvtap": {Model: Macvtap}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			n, vm := p.open(t, opts), newMachine(t)
			must(t, n.Plug(t.Context(), vm))
			tap := vm.taps[vm.order[0]][0]
			client, w := dhcpSocket(t, p.ns, "eth0"), wire(t, p.host, "eth0")
			mac := linkOf(t, p.host, "eth0").Attrs().HardwareAddr
			for _, d := range []struct {
				port uint16
				text string
			}{{9999, "not DHCP"}, {68, "an answer"}} {
				if _, err := w.Write(datagram(mac, d.port, d.text)); err != nil {
					t.Fatal(err)
				}
				expect(t, tap, vnetHeader+28, d.text)
			}
			// The first datagram must not have come: it would be before this one.
			must(t, client.SetReadDeadline(time.Now().Add(20*time.Second)))
			buf := make([]byte, 2048)
			got, err := client.Read(buf)
			if err != nil || got < 28 || string(buf[28:got]) != "an answer" {
				t.Errorf("the client got %q, %v", buf[:got], err)
			}
		})
	}
}

// A link that only carries another one gets no NIC, which would take the other's
// packets.
func TestPacketsOfUpperLinks(t *testing.T) {
	t.Parallel()
	for name, upper := range map[string]func(p *pod, lower int) error{
		"macvlan": func(p *pod, lower int) error {
			return p.ns.LinkAdd(&netlink.Macvlan{
				LinkAttrs: netlink.LinkAttrs{Name: "up0", ParentIndex: lower, TxQLen: -1}, Mode: netlink.MACVLAN_MODE_BRIDGE,
			})
		},
		"bridge": func(p *pod, lower int) error {
			if err := p.ns.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "up0", TxQLen: -1}}); err != nil {
				return err
			}
			bridge, err := p.ns.LinkByName("up0")
			if err != nil {
				return err
			}
			return p.ns.LinkSetMasterByIndex(linkAt(lower), bridge.Attrs().Index)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			lower := p.veth(t, "eth1").Attrs().Index
			p.address(t, "eth1", "fe80::7/64")
			if err := upper(p, lower); errors.Is(err, unix.EOPNOTSUPP) {
				t.Skipf("this kernel has no %s links", name)
			} else if err != nil {
				t.Fatal(err)
			}
			p.address(t, "up0", "10.4.0.2/24")
			n, vm := p.open(t, Options{}), newMachine(t)
			must(t, n.Plug(t.Context(), vm))
			if got := interfaces(n); !slices.Equal(got, []string{"eth0", "up0"}) {
				t.Fatalf("the guest has %v", got)
			}
			if _, err := wire(t, p.host, "eth1").Write(frame(linkOf(t, p.host, "eth1").Attrs().HardwareAddr, "for the upper link")); err != nil {
				t.Fatal(err)
			}
			expect(t, vm.taps[vm.order[1]][0], vnetHeader, "for the upper link")
		})
	}
}
