package qemu

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
)

var testMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}

func TestPlanNIC(t *testing.T) {
	f := devNull(t)
	for _, tt := range []struct {
		name          string
		taps, vhosts  int
		files         []string
		netdev, extra map[string]any
	}{
		{"one queue", 1, 0, []string{"fd-x-0"},
			map[string]any{"fd": "fd-x-0"}, nil},
		{"one queue, vhost", 1, 1, []string{"fd-x-0", "vhost-x-0"},
			map[string]any{"fd": "fd-x-0", "vhost": true, "vhostforce": true, "vhostfd": "vhost-x-0"}, nil},
		{"two queues", 2, 0, []string{"fd-x-0", "fd-x-1"},
			map[string]any{"fds": "fd-x-0:fd-x-1"}, map[string]any{"mq": true, "vectors": 6}},
		{"two queues, vhost", 2, 2, []string{"fd-x-0", "fd-x-1", "vhost-x-0", "vhost-x-1"},
			map[string]any{"fds": "fd-x-0:fd-x-1", "vhost": true, "vhostforce": true, "vhostfds": "vhost-x-0:vhost-x-1"},
			map[string]any{"mq": true, "vectors": 6}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := planOf(hypervisor.NIC{ID: "x", MAC: testMAC, Taps: repeat(f, tt.taps), Vhost: repeat(f, tt.vhosts)}, 1)
			if err != nil {
				t.Fatal(err)
			}
			var files []string
			for _, f := range p.files {
				files = append(files, f.name)
			}
			netdev := map[string]any{"type": "tap", "id": "net-x"}
			device := map[string]any{
				"driver": "virtio-net-pci", "id": "x", "bus": podBus, "netdev": "net-x",
				"mac": "02:00:00:00:00:01", "disable-legacy": "on", "romfile": "",
			}
			for from, to := range map[*map[string]any]map[string]any{&tt.netdev: netdev, &tt.extra: device} {
				for k, v := range *from {
					to[k] = v
				}
			}
			if diff := cmp.Diff([]any{tt.files, netdev, device}, []any{files, p.backend.add.args, p.device}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// When QEMU refuses a step, those before it are undone.
func TestAttachNICCommands(t *testing.T) {
	ns := testNetns(t)
	const (
		get0   = `getfd {"fdname":"fd-x-0"} +file`
		get1   = `getfd {"fdname":"fd-x-1"} +file`
		close0 = `closefd {"fdname":"fd-x-0"}`
		close1 = `closefd {"fdname":"fd-x-1"}`
		netdev = `netdev_add {"fds":"fd-x-0:fd-x-1","id":"net-x","type":"tap"}`
		card   = `device_add {"addr":"0x1","bus":"pod","disable-legacy":"on","driver":"virtio-net-pci",` +
			`"id":"x","mac":"02:00:00:00:00:01","mq":true,"netdev":"net-x","romfile":"","vectors":6}`
	)
	nic := testNIC(t, ns, "x", 2)
	for refuse, want := range map[string][]string{
		"":                {get0, get1, netdev, card},
		"the second file": {get0, get1, close0},
		"netdev_add":      {get0, get1, netdev, close0, close1},
		"device_add":      {get0, get1, netdev, card, `netdev_del {"id":"net-x"}`},
	} {
		files := 0
		vm := script(t, func(command string) string {
			if command == "getfd" {
				files++
			}
			if command == refuse || refuse == "the second file" && command == "getfd" && files == 2 {
				return "out of luck"
			}
			return ""
		})
		err := vm.Attach(testContext(t), nic)
		if (err != nil) != (refuse != "") {
			t.Errorf("refused %q: %v", refuse, err)
		}
		if diff := cmp.Diff(want, vm.sent()); diff != "" {
			t.Errorf("refused %q: %s", refuse, diff)
		}
		if path, err := vm.PCIPath("x"); (err != nil) != (refuse != "") {
			t.Errorf("refused %q: %q, %v", refuse, path, err)
		}
	}
}

func repeat(f *os.File, n int) []*os.File {
	var all []*os.File
	for range n {
		all = append(all, f)
	}
	return all
}

// A bad card is refused before QEMU gets any command.
func TestNICChecks(t *testing.T) {
	vm := script(t, refuseNothing)
	ns := testNetns(t)
	f := devNull(t)
	nic := func(mac net.HardwareAddr, taps ...*os.File) hypervisor.NIC {
		return hypervisor.NIC{ID: "x", MAC: mac, Taps: taps}
	}
	vhost := func(n int, taps ...*os.File) hypervisor.NIC {
		return hypervisor.NIC{ID: "x", MAC: testMAC, Taps: taps, Vhost: repeat(f, n)}
	}
	closed := openTap(t, ns, "closed", tapFlags)
	_ = closed.Close()
	for name, tt := range map[string]struct {
		device hypervisor.NIC
		want   string
	}{
		"no MAC":               {nic(nil, f), "not of 6 bytes"},
		"long MAC":             {nic(make(net.HardwareAddr, 8), f), "not of 6 bytes"},
		"multicast MAC":        {nic(net.HardwareAddr{3, 0, 0, 0, 0, 1}, f), "multicast address"},
		"zero MAC":             {nic(make(net.HardwareAddr, 6), f), "an invalid address"},
		"no TAP":               {nic(testMAC), "0 TAP queues"},
		"too many TAP queues":  {nic(testMAC, repeat(f, 257)...), "257 TAP queues"},
		"nil TAP":              {nic(testMAC, f, nil), "missing"},
		"vhost for one of two": {vhost(1, f, f), "1 vhost-net files for 2"},
		"closed TAP":           {nic(testMAC, closed), "use of closed file"},
		"not a TAP":            {nic(testMAC, f), "ask " + os.DevNull},
		"TAP without header": {nic(testMAC, openTap(t, ns, "bare", unix.IFF_TAP|unix.IFF_NO_PI)),
			"TAP device bare has flags 0x1002"},
		"TUN device": {nic(testMAC, openTap(t, ns, "ip", unix.IFF_TUN|unix.IFF_NO_PI|unix.IFF_VNET_HDR)),
			"TAP device ip has flags 0x5001"},
		"two TAP devices": {nic(testMAC, openTap(t, ns, "a", tapFlags), openTap(t, ns, "b", tapFlags)),
			"queues of the TAP devices a and b"},
	} {
		if err := vm.Attach(testContext(t), tt.device); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := vm.PCIPath("x"); !errdefs.IsNotFound(err) {
			t.Errorf("%s: the ID is in use: %v", name, err)
		}
	}
	if got := vm.sent(); len(got) != 0 {
		t.Errorf("QEMU was asked: %q", got)
	}
}

// A real card in a paused and in a running machine, with one and with several
// queues.
func TestAttachNIC(t *testing.T) {
	ns := testNetns(t)
	spec := testSpec(t, testKernel(t, "", idle))
	spec.NetworkNamespace = netnsPath(ns)
	vm := launch(t, spec)
	want := 0
	for _, running := range []bool{false, true} {
		if running {
			if err := vm.Resume(testContext(t)); err != nil {
				t.Fatal(err)
			}
		}
		for _, queues := range []int{1, 2} {
			nic := testNIC(t, ns, fmt.Sprintf("n%d%v", queues, running), queues)
			start := time.Now()
			if err := vm.Attach(testContext(t), nic); err != nil {
				t.Fatal(err)
			}
			t.Logf("running %v, %d queues: attached in %v", running, queues, time.Since(start))
			want += queues
			if got := tapsOf(t, vm.PID()); got != want {
				t.Errorf("QEMU has %d TAP queues, want %d", got, want)
			}
			for _, tap := range nic.Taps {
				checkNonblocking(t, tap)
			}
			checkMAC(t, vm, nic)
		}
	}
}

// checkNonblocking checks the mode of the open file, which QEMU shares.
func checkNonblocking(t *testing.T, f *os.File) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var flags int
	_ = raw.Control(func(fd uintptr) { flags, err = unix.FcntlInt(fd, unix.F_GETFL, 0) })
	if err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("%s has flags %#x, %v: not non-blocking", f.Name(), flags, err)
	}
}

func checkMAC(t *testing.T, vm *VM, nic hypervisor.NIC) {
	t.Helper()
	var mac string
	args := map[string]string{"path": "/machine/peripheral/" + nic.ID, "property": "mac"}
	if err := vm.mon.Execute(testContext(t), "qom-get", args, &mac); err != nil || mac != nic.MAC.String() {
		t.Errorf("the card's MAC is %q, want %s, %v", mac, nic.MAC, err)
	}
}

// A card that QEMU refuses leaves the machine as it was.
func TestRefusedNICIsUndone(t *testing.T) {
	ns := testNetns(t)
	vm := launch(t, testSpec(t, testKernel(t, "", idle)))
	nic := testNIC(t, ns, "n", 1)
	p, err := planOf(nic, 1)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*plan){
		"no such network device type": func(p *plan) { p.backend.add.args["type"] = "warp" },
		"no such descriptor":          func(p *plan) { p.backend.add.args["fd"] = "nothing" },
		"no such card":                func(p *plan) { p.device["driver"] = "warp" },
		"no such slot":                func(p *plan) { p.device["addr"] = "0x20" },
		"vhost-net is none": func(p *plan) {
			q, err := planOf(hypervisor.NIC{ID: nic.ID, MAC: nic.MAC, Taps: nic.Taps, Vhost: []*os.File{devNull(t)}}, 1)
			if err != nil {
				t.Fatal(err)
			}
			*p = q
		},
	} {
		p, err = planOf(nic, 1)
		if err != nil {
			t.Fatal(err)
		}
		p.device["addr"] = "0x1"
		change(&p)
		if err := vm.plug(testContext(t), p); !refused(err) {
			t.Errorf("%s: %v", name, err)
		}
		if text := netdevs(t, vm); text != "" || tapsOf(t, vm.PID()) != 0 {
			t.Errorf("%s: QEMU has %q and %d TAP queues", name, text, tapsOf(t, vm.PID()))
		}
	}
	if err := vm.Attach(testContext(t), nic); err != nil {
		t.Errorf("a good card afterwards: %v", err)
	}
	if text := netdevs(t, vm); !strings.Contains(text, "net-n") {
		t.Errorf("QEMU has %q", text)
	}
}

// The bus takes that many cards and no more.
func TestSlotsAreUsedUp(t *testing.T) {
	ns := testNetns(t)
	vm := launch(t, testSpec(t, testKernel(t, "", idle)))
	for i := firstSlot; i <= lastSlot; i++ {
		if err := vm.Attach(testContext(t), testNIC(t, ns, fmt.Sprintf("n%d", i), 1)); err != nil {
			t.Fatalf("card %d: %v", i, err)
		}
	}
	if err := vm.Attach(testContext(t), testNIC(t, ns, "more", 1)); !errdefs.IsResourceExhausted(err) {
		t.Errorf("one more: %v", err)
	}
	if path, err := vm.PCIPath("n31"); path != "01/1c" || err != nil {
		t.Errorf("the last one is not in the last slot to be tried, but at %q, %v", path, err)
	}
	if got := tapsOf(t, vm.PID()); got != lastSlot {
		t.Errorf("QEMU has %d TAP queues", got)
	}
}

// QEMU runs in the spec's network namespace, and still in its own other
// namespaces.
func TestNetworkNamespace(t *testing.T) {
	ns := testNetns(t)
	spec := testSpec(t, testKernel(t, "", idle))
	spec.NetworkNamespace = netnsPath(ns)
	vm := launch(t, spec)
	want, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", ns.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	for name, same := range map[string]func(link, host string) bool{
		"net": func(link, _ string) bool { return link == want },
		"pid": func(link, host string) bool { return link != host },
		"ipc": func(link, host string) bool { return link != host },
		"uts": func(link, host string) bool { return link != host },
	} {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", vm.PID(), name))
		host, hostErr := os.Readlink("/proc/self/ns/" + name)
		if err := errors.Join(err, hostErr); err != nil {
			t.Fatal(err)
		}
		if !same(link, host) {
			t.Errorf("QEMU is in %s; this process in %s, the wanted network namespace is %s", link, host, want)
		}
	}
	// If the spec names none, it runs in an empty one.
	spec.NetworkNamespace = ""
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", launch(t, spec).PID()))
	host, hostErr := os.Readlink("/proc/self/ns/net")
	if link == want || link == host || errors.Join(err, hostErr) != nil {
		t.Errorf("QEMU is in %s, %v", link, err)
	}
}
