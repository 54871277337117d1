package network

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"
	"time"

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
	var file *os.File
	index := linkOf(t, ns, name).Attrs().Index
	must(t, ns.do(func() error {
		proto := int(testEtherType>>8 | testEtherType&0xff<<8)
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
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
	must(t, from.SetReadDeadline(time.Now().Add(20*time.Second)))
	buf := make([]byte, 65536)
	for {
		n, err := from.Read(buf)
		if err != nil {
			t.Fatalf("no frame %q: %v", text, err)
		}
		if n > skip+14 && bytes.HasPrefix(buf[skip+14:n], []byte(text)) {
			return
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
