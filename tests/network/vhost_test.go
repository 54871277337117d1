package network

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// vhostDevice is the host kernel's back end of network cards.
const vhostDevice = "/dev/vhost-net"

// On a host with vhost-net it carries a pod's packets, with one open device for
// each card. Without it, or if the configuration disables it, QEMU does. Packets
// arrive whole either way.
func TestVhostNet(t *testing.T) {
	needVM(t)
	if _, err := os.Stat(vhostDevice); err != nil {
		t.Skip("no vhost-net on this host:", err)
	}
	for _, test := range []struct {
		name, config string
		want         int
	}{
		{"vhost-net", "", 1},
		{"disabled", "[hypervisor.qemu]\ndisable_vhost_net = true\n", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, d := begin(t)
			configure(t, d, test.config)
			const mtu = 1500
			bridge, ns := newBridge(t, d, mtu), newNetns(t, d)
			link := bridge.join(t, ns, "eth0")
			p := newPod(ctx, t, d, ns)
			if got := openFiles(t, d, vhostDevice); got != test.want {
				t.Errorf("QEMU has %s open %d times, want %d", vhostDevice, got, test.want)
			}
			p.sameState(ctx, t, ns)
			netns("").serve(ctx, t, servers...)
			p.checks(ctx, t, targets(mtu, bridge.gateways()...)...)
			netns("").checks(t, targets(mtu, link.addrs()...)...)
		})
	}
}

// openFiles counts the descriptors that the only pod's QEMU has for a file.
func openFiles(t *testing.T, d *harness.Daemon, path string) (n int) {
	t.Helper()
	qemu, err := d.One(harness.KindVMM)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := filepath.Glob(filepath.Join("/proc", fmt.Sprint(qemu.PID), "fd", "*"))
	if err != nil || len(fds) == 0 {
		t.Fatalf("QEMU has no files: %v", err)
	}
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && target == path {
			n++
		}
	}
	return n
}
