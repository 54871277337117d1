package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
)

var errInjected = errors.New("injected")

// ways are how a pod's links can be joined.
var ways = map[string]Options{
	"tcfilter":       {},
	"queues":         {Queues: 3},
	"rates":          {RxRate: 10e6, TxRate: 20e6},
	"none":           {Model: None},
	"none and rates": {Model: None, RxRate: 10e6},
	"macvtap":        {Model: Macvtap, Queues: 2, TxRate: 20e6},
	"macvtap, rates": {Model: Macvtap, RxRate: 20e6, TxRate: 20e6},
}

func TestCloseRestores(t *testing.T) {
	t.Parallel()
	for name, opts := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newRoutedPod(t)
			before := inventory(t, p.ns)
			n, vm := p.open(t, opts), newMachine(t)
			must(t, n.Plug(t.Context(), vm))
			during := inventory(t, p.ns)
			if during == before {
				t.Error("Plug has changed nothing")
			}
			must(t, n.Plug(t.Context(), vm))
			if diff := cmp.Diff(during, inventory(t, p.ns)); diff != "" {
				t.Errorf("a second Plug changed (-before +after):\n%s", diff)
			}
			vm.end()
			must(t, n.Close(t.Context()))
			if diff := cmp.Diff(before, inventory(t, p.ns)); diff != "" {
				t.Errorf("left behind (-before +after):\n%s", diff)
			}
		})
	}
}

// TestCleanRestores abandons the Network, as if the process had been killed
// after any of Plug's steps.
func TestCleanRestores(t *testing.T) {
	t.Parallel()
	for name, opts := range ways {
		for _, attached := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, attached %v", name, attached), func(t *testing.T) {
				t.Parallel()
				opts := opts
				p := newRoutedPod(t)
				before := inventory(t, p.ns)
				var saved []byte
				opts.Save = func(made []byte) error {
					saved = bytes.Clone(made)
					if diff := cmp.Diff(before, inventory(t, p.ns)); diff != "" {
						t.Errorf("made before it was saved:\n%s", diff)
					}
					return nil
				}
				opts.Namespace = p.path
				n, err := Open(opts)
				must(t, err)
				var m fake.Monitor
				vm := newMachineOf(t, &m)
				if attached {
					must(t, n.Plug(t.Context(), vm))
				} else {
					leave := errors.New("killed")
					m.Hook(fake.StepAttach, func(context.Context, *fake.VM) error {
						must(t, Clean(p.path, saved)) // before anything is undone
						if diff := cmp.Diff(before, inventory(t, p.ns)); diff != "" {
							t.Errorf("left behind:\n%s", diff)
						}
						return leave
					})
					if err := n.Plug(t.Context(), vm); !errors.Is(err, leave) {
						t.Errorf("Plug: %v", err)
					}
				}
				vm.end()
				must(t, n.ns.close()) // all that dies with the process
				for range 2 {
					must(t, Clean(p.path, saved))
					if diff := cmp.Diff(before, inventory(t, p.ns)); diff != "" {
						t.Errorf("left behind (-before +after):\n%s", diff)
					}
				}
			})
		}
	}
}

func TestCleanTouchesNoOther(t *testing.T) {
	t.Parallel()
	a, b := newPod(t), newPod(t)
	var saved []byte
	n, vm := a.open(t, Options{Save: func(made []byte) error { saved = bytes.Clone(made); return nil }}), newMachine(t)
	must(t, n.Plug(t.Context(), vm))
	other, vmB := b.open(t, Options{}), newMachine(t)
	must(t, other.Plug(t.Context(), vmB))
	before := inventory(t, b.ns)
	must(t, Clean(b.path, saved)) // the path leads to another namespace now
	if diff := cmp.Diff(before, inventory(t, b.ns)); diff != "" {
		t.Errorf("Clean changed another namespace:\n%s", diff)
	}
	for _, path := range []string{"/run/netns/nobody-made-this", "/proc/self/ns/mnt", os.DevNull, "/proc/self/ns/net"} {
		must(t, Clean(path, saved))
	}
	for _, made := range []string{"", "{}", `{"version":2}`, `{"version":1,"more":1}`, "null"} {
		if err := Clean(a.path, []byte(made)); !errdefs.IsInvalidArgument(err) {
			t.Errorf("Clean with %q: %v", made, err)
		}
	}
}

func TestFailedLinkLeavesNothing(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	p.veth(t, "eth1", "10.2.0.2/24")
	before := inventory(t, p.ns)
	n := p.open(t, Options{})
	var m fake.Monitor
	vm := newMachineOf(t, &m)
	m.Fail(fake.StepAttach, errInjected)
	if err := n.Plug(t.Context(), vm); !errors.Is(err, errInjected) || !strings.Contains(err.Error(), "link eth1 (veth)") {
		t.Errorf("Plug: %v", err)
	}
	if diff := cmp.Diff(before, inventory(t, p.ns)); diff != "" {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
	m.Fail(fake.StepAttach, nil)
	var calls int
	m.Hook(fake.StepAttach, func(context.Context, *fake.VM) error {
		if calls++; calls == 1 {
			return errInjected
		}
		return nil
	})
	if err := n.Plug(t.Context(), vm); !errors.Is(err, errInjected) {
		t.Errorf("Plug: %v", err)
	}
	if got := interfaces(n); !cmp.Equal(got, []string{"eth1"}) {
		t.Errorf("the guest has %v, want only the link that could be joined", got)
	}
	must(t, n.Plug(t.Context(), vm))
	if got := interfaces(n); !cmp.Equal(got, []string{"eth0", "eth1"}) {
		t.Errorf("the guest has %v", got)
	}
	ping(t, p, vm.taps[vm.order[1]][0], "eth0")
}

func TestNothingIsMadeUnsaved(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	before := inventory(t, p.ns)
	n := p.open(t, Options{Save: func([]byte) error { return errInjected }})
	if err := n.Plug(t.Context(), newMachine(t)); !errors.Is(err, errInjected) {
		t.Errorf("Plug: %v", err)
	}
	if diff := cmp.Diff(before, inventory(t, p.ns)); diff != "" {
		t.Errorf("made (-before +after):\n%s", diff)
	}
}

func TestLinksComeAndGo(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	must(t, n.Plug(t.Context(), vm))
	p.veth(t, "late") // no address yet
	must(t, n.Plug(t.Context(), vm))
	if got := interfaces(n); !cmp.Equal(got, []string{"eth0"}) {
		t.Errorf("a link without an address: the guest has %v", got)
	}
	p.address(t, "late", "fe80::1/64")
	must(t, n.Plug(t.Context(), vm))
	if got := interfaces(n); !cmp.Equal(got, []string{"eth0", "late"}) {
		t.Errorf("after it got one: the guest has %v", got)
	}
	ping(t, p, vm.taps[vm.order[1]][0], "late")

	must(t, p.ns.LinkDel(linkOf(t, p.ns, "eth0")))
	vm.detach = errInjected
	if err := n.Plug(t.Context(), vm); !errors.Is(err, errInjected) {
		t.Errorf("Plug without Detach: %v", err)
	}
	if got := interfaces(n); !cmp.Equal(got, []string{"late"}) {
		t.Errorf("after its link is gone: the guest has %v", got)
	}
	if _, err := p.ns.LinkByName(tapName(vm.index(t, 0))); !isGone(err) {
		t.Errorf("the tap is left when the VM keeps the NIC: %v", err)
	}
	vm.detach = nil
	must(t, n.Plug(t.Context(), vm))
	if len(vm.detached) != 1 || vm.detached[0] != vm.order[0] {
		t.Errorf("detached: %v, want %s", vm.detached, vm.order[0])
	}
	p.veth(t, "eth0", "10.1.0.3/24")
	must(t, n.Plug(t.Context(), vm))
	if got := interfaces(n); !cmp.Equal(got, []string{"late", "eth0"}) {
		t.Errorf("the same name again: the guest has %v", got)
	}
	ping(t, p, vm.taps[vm.order[2]][0], "eth0")
}

// TestMachineThatKeepsDevices checks that the link and its tap go even if the
// VM cannot detach.
func TestMachineThatKeepsDevices(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	vm.detach = errdefs.ErrNotImplemented
	must(t, n.Plug(t.Context(), vm))
	must(t, p.ns.LinkDel(linkOf(t, p.ns, "eth0")))
	must(t, n.Plug(t.Context(), vm))
	if got := interfaces(n); len(got) != 0 {
		t.Errorf("the guest has %v", got)
	}
	if len(vm.detached) != 0 {
		t.Errorf("detached: %v", vm.detached)
	}
	if _, err := p.ns.LinkByName(tapName(vm.index(t, 0))); !isGone(err) {
		t.Errorf("the tap is left: %v", err)
	}
}

// TestJoinedLinkTurnsBad gives a link that has a NIC an MTU that no NIC has.
func TestJoinedLinkTurnsBad(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	must(t, n.Plug(t.Context(), vm))
	must(t, p.ns.LinkSetMTU(linkOf(t, p.ns, "eth0"), 65535))
	if err := n.Plug(t.Context(), vm); !errdefs.IsInvalidArgument(err) {
		t.Errorf("Plug: %v", err)
	}
	if i := n.State().GetInterfaces(); len(i) != 1 || i[0].GetMtu() != maxMTU {
		t.Errorf("the guest has %v, want one interface with the largest MTU", i)
	}
	must(t, n.Plug(t.Context(), vm))
	ping(t, p, vm.taps[vm.order[0]][0], "eth0")
}

// index returns the index of the link for which the ith NIC was made.
func (m *machine) index(t *testing.T, i int) (index int) {
	t.Helper()
	if _, err := fmt.Sscanf(m.order[i], "net-%d", &index); err != nil {
		t.Fatal(err)
	}
	return index
}

func TestSameIndexAgain(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	must(t, n.Plug(t.Context(), vm))
	old := linkOf(t, p.ns, "eth0").Attrs().Index
	must(t, p.ns.LinkDel(linkOf(t, p.ns, "eth0")))
	must(t, n.Plug(t.Context(), vm))
	must(t, p.ns.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "eth0", Index: old, TxQLen: -1}, PeerName: "eth0", PeerNamespace: netlink.NsFd(p.host.file.Fd()),
	}))
	up(t, p.host, "eth0")
	p.address(t, "eth0", "10.1.0.2/24")
	must(t, n.Plug(t.Context(), vm))
	if len(vm.order) != 2 || vm.order[0] == vm.order[1] {
		t.Fatalf("NICs %v, want two", vm.order)
	}
	ping(t, p, vm.taps[vm.order[1]][0], "eth0")
}

// TestRedirectsReturn removes the redirects and checks that the next Plug makes
// them again.
func TestRedirectsReturn(t *testing.T) {
	t.Parallel()
	for _, opts := range []Options{{TxRate: 1e9}, {Model: Macvtap}} {
		p := newPod(t)
		before := inventory(t, p.ns)
		n, vm := p.open(t, opts), newMachine(t)
		must(t, n.Plug(t.Context(), vm))
		during := inventory(t, p.ns)
		must(t, p.ns.removeIngress(linkOf(t, p.ns, "eth0").Attrs().Index))
		must(t, n.Plug(t.Context(), vm))
		if diff := cmp.Diff(during, inventory(t, p.ns)); diff != "" {
			t.Errorf("not as before (-before +after):\n%s", diff)
		}
		ping(t, p, vm.taps[vm.order[0]][0], "eth0")
		vm.end()
		must(t, n.Close(t.Context()))
		if diff := cmp.Diff(before, inventory(t, p.ns)); diff != "" {
			t.Errorf("left behind (-before +after):\n%s", diff)
		}
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	for _, model := range []Model{TCFilter, Macvtap} {
		t.Run(string(model), func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			for _, extreme := range []uint64{MinRate, MaxRate} {
				n, vm := p.open(t, Options{Model: model, RxRate: extreme, TxRate: extreme}), newMachine(t)
				must(t, n.Plug(t.Context(), vm))
				vm.end()
				must(t, n.Close(t.Context()))
			}
			const toGuest, fromGuest = 80e6, 100e9 // the latter needs 64 bits
			n, vm := p.open(t, Options{Model: model, RxRate: toGuest, TxRate: fromGuest}), newMachine(t)
			must(t, n.Plug(t.Context(), vm))
			ping(t, p, vm.taps[vm.order[0]][0], "eth0")
			index := linkOf(t, p.ns, "eth0").Attrs().Index
			received, sent := tapName(index), "eth0"
			if model == Macvtap {
				received, sent = shaperName(index), tapName(index)
			}
			for name, want := range map[string]uint64{received: toGuest / 8, sent: fromGuest / 8} {
				if rate, packets := bucket(t, p.ns, name); rate != want || packets == 0 {
					t.Errorf("%s: %d bytes per second for %d packets, want %d for some", name, rate, packets, want)
				}
			}
		})
	}
}

// bucket returns the rate of a link's token bucket, and how many packets it
// saw.
func bucket(t *testing.T, ns *namespace, name string) (rate uint64, packets uint32) {
	t.Helper()
	qdiscs, err := ns.qdiscs(linkOf(t, ns, name).Attrs().Index)
	must(t, err)
	for _, q := range qdiscs {
		if tbf, ok := q.(*netlink.Tbf); ok {
			return tbf.Rate, tbf.Statistics.Basic.Packets
		}
	}
	return 0, 0
}

func TestBadLinks(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		add  func(t *testing.T, p *pod) error
		want string
	}{
		"no MAC": {func(_ *testing.T, p *pod) error {
			return p.ns.LinkAdd(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: "odd", TxQLen: -1}, LinkType: "ipip"})
		}, "link odd (ipip)"},
		"tun": {func(t *testing.T, p *pod) error {
			return p.ns.do(func() error {
				f, err := openQueue(unix.AT_FDCWD, tunDevice, "odd", unix.IFF_TUN|unix.IFF_NO_PI)
				if err == nil {
					t.Cleanup(func() { f.Close() })
				}
				return err
			})
		}, "a VM's NIC needs an Ethernet link with a MAC of six bytes"},
		"MTU": {func(t *testing.T, p *pod) error {
			p.veth(t, "odd")
			return p.ns.LinkSetMTU(linkOf(t, p.ns, "odd"), 65535)
		}, "has an MTU of 65535: a VM's NIC has at most 65521"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			if err := tt.add(t, p); errors.Is(err, unix.EOPNOTSUPP) {
				t.Skip("this kernel has no such links")
			} else if err != nil {
				t.Fatal(err)
			}
			p.address(t, "odd", "10.9.0.1/24")
			n, vm := p.open(t, Options{}), newMachine(t)
			err := n.Plug(t.Context(), vm)
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Plug: %v, want %q", err, tt.want)
			}
			if got := interfaces(n); !cmp.Equal(got, []string{"eth0"}) {
				t.Errorf("the guest has %v", got)
			}
			if err := n.Plug(t.Context(), vm); err != nil {
				t.Errorf("the same again: %v", err)
			}
		})
	}
}

// TestRefusedByModel gives links to models that cannot join them.
func TestRefusedByModel(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	parent := linkOf(t, p.ns, "eth0").Attrs().Index
	must(t, p.ns.LinkAdd(&netlink.Macvlan{
		LinkAttrs: netlink.LinkAttrs{Name: "mv0", ParentIndex: parent, TxQLen: -1}, Mode: netlink.MACVLAN_MODE_BRIDGE,
	}))
	p.address(t, "mv0", "10.4.0.2/24")
	before := inventory(t, p.ns)
	n, vm := p.open(t, Options{Model: Macvtap}), newMachine(t)
	if err := n.Plug(t.Context(), vm); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "link mv0 (macvlan): model macvtap is not for links of this kind: use tcfilter") {
		t.Errorf("Plug: %v", err)
	}
	must(t, n.Plug(t.Context(), vm))
	if got := interfaces(n); !cmp.Equal(got, []string{"eth0"}) {
		t.Errorf("the guest has %v", got)
	}
	vm.end()
	must(t, n.Close(t.Context()))
	if diff := cmp.Diff(before, inventory(t, p.ns)); diff != "" {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
}

func TestLargestMTU(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	must(t, p.ns.LinkSetMTU(linkOf(t, p.ns, "eth0"), maxMTU))
	n, vm := p.open(t, Options{}), newMachine(t)
	must(t, n.Plug(t.Context(), vm))
	tap := linkOf(t, p.ns, tapName(vm.index(t, 0)))
	if tap.Attrs().MTU != maxMTU {
		t.Errorf("the tap has an MTU of %d", tap.Attrs().MTU)
	}
}

func TestPersistentTap(t *testing.T) {
	t.Parallel()
	for _, flags := range []uint16{0, unix.IFF_MULTI_QUEUE} {
		p := newPod(t)
		must(t, p.ns.do(func() error {
			f, err := openQueue(unix.AT_FDCWD, tunDevice, "tap0", unix.IFF_TAP|unix.IFF_NO_PI|flags)
			if err != nil {
				return err
			}
			defer f.Close()
			return unix.IoctlSetInt(int(f.Fd()), unix.TUNSETPERSIST, 1)
		}))
		p.address(t, "tap0", "10.3.0.2/24")
		before := inventory(t, p.ns)
		n, vm := p.open(t, Options{Queues: 2}), newMachine(t)
		must(t, n.Plug(t.Context(), vm))
		want := 1
		if flags != 0 {
			want = 2
		}
		taps := vm.taps[vm.order[1]]
		if len(taps) != want {
			t.Errorf("%d queues, want %d", len(taps), want)
		}
		w := wire(t, p.ns, "tap0")
		if _, err := w.Write(frame(make([]byte, 6), "through the tap")); err != nil {
			t.Fatal(err)
		}
		if want == 1 { // of several queues the kernel chooses one
			expect(t, taps[0], vnetHeader, "through the tap")
		}
		vm.end()
		must(t, n.Close(t.Context()))
		before, after := withoutFlags(before), withoutFlags(inventory(t, p.ns))
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("left behind (-before +after):\n%s", diff)
		}
	}
}

// withoutFlags removes whether links have a carrier.
func withoutFlags(inventory string) string {
	var kept []string
	for line := range strings.Lines(inventory) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " flags")
		if !strings.Contains(line, "ff00::/8") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

func TestOtherKinds(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	parent := linkOf(t, p.ns, "eth0").Attrs().Index
	for _, l := range []netlink.Link{
		&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", TxQLen: -1}},
		&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "mv0", ParentIndex: parent, TxQLen: -1}, Mode: netlink.MACVLAN_MODE_BRIDGE},
		&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "vl0", ParentIndex: parent, TxQLen: -1}, VlanId: 5},
		&netlink.IPVlan{LinkAttrs: netlink.LinkAttrs{Name: "iv0", ParentIndex: parent, TxQLen: -1}},
		&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "dm0", TxQLen: -1}},
	} {
		name := l.Attrs().Name
		if err := p.ns.LinkAdd(l); errors.Is(err, unix.EOPNOTSUPP) {
			t.Logf("not tested: this kernel has no %s links", l.Type())
			continue
		} else if err != nil {
			t.Fatal(name, err)
		}
		p.address(t, name, "10.4.0.2/24")
		n, vm := p.open(t, Options{}), newMachine(t)
		must(t, n.Plug(t.Context(), vm))
		if got := interfaces(n); !cmp.Equal(got, []string{"eth0", name}) {
			t.Errorf("%s: the guest has %v", name, got)
		}
		vm.end()
		must(t, n.Close(t.Context()))
		must(t, p.ns.LinkDel(linkOf(t, p.ns, name)))
	}
}

func TestTooManyLinks(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	for i := range api.MaxInterfaces {
		p.veth(t, fmt.Sprintf("net%d", i), fmt.Sprintf("10.5.%d.2/24", i))
	}
	n, vm := p.open(t, Options{}), newMachine(t)
	if err := n.Plug(t.Context(), vm); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "at most 28 NICs") {
		t.Errorf("Plug: %v", err)
	}
	if got := len(n.State().GetInterfaces()); got != api.MaxInterfaces {
		t.Errorf("%d NICs, want %d", got, api.MaxInterfaces)
	}
}

func TestDescriptorsAreClosed(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n := p.open(t, Options{Queues: 2, VhostNet: true})
	var m fake.Monitor
	vm, err := m.Launch(t.Context(), hypervisor.Spec{ID: "s1"})
	must(t, err)
	must(t, n.Plug(t.Context(), vm)) // it keeps no duplicates
	if _, err := p.ns.LinkByName(tapName(linkOf(t, p.ns, "eth0").Attrs().Index)); !isGone(err) {
		t.Errorf("the tap lives although its VM has not got it: %v", err)
	}
}

func interfaces(n *Network) []string {
	var names []string
	for _, i := range n.State().GetInterfaces() {
		names = append(names, i.GetName())
	}
	return names
}
