package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
)

// The main thread stays in its namespace: tests make namespaces on other
// threads.
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	if err := log.SetLevel("error"); err != nil { // tests check what is skipped
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// newNamespace makes an unnamed network namespace, until the end of the test.
// path leads to it.
func newNamespace(t *testing.T) (ns *namespace, path string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: a network namespace is made")
	}
	type made struct {
		file *os.File
		err  error
	}
	done := make(chan made)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = dropInherited()
		}
		var file *os.File
		if err == nil {
			file, err = os.Open("/proc/thread-self/ns/net")
		}
		done <- made{file, err}
	}()
	m := <-done
	if m.err != nil {
		t.Fatal(m.err)
	}
	t.Cleanup(func() { m.file.Close() })
	path = fmt.Sprintf("/proc/self/fd/%d", m.file.Fd())
	ns, err := openNamespace(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.close() })
	return ns, path
}

// dropInherited gives the thread's namespace the kernel's settings instead of the host's.
func dropInherited() error {
	for _, name := range api.LinkSettings {
		family, file := filepath.Split(name)
		err := os.WriteFile(filepath.Join("/proc/sys/net", family, "conf/default", file), fmt.Append(nil, kernelSettings[name]), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// pod is a network namespace with a veth pair to another one, as CNI's bridge
// plugin sets it up.
type pod struct {
	ns, host *namespace
	path     string
}

func newPod(t *testing.T) *pod {
	t.Helper()
	ns, path := newNamespace(t)
	host, _ := newNamespace(t)
	p := &pod{ns: ns, host: host, path: path}
	p.veth(t, "eth0", "10.1.0.2/24", "fd01::2/64")
	return p
}

// veth adds a veth pair with addresses; the host's end has the same name.
func (p *pod) veth(t *testing.T, name string, addrs ...string) netlink.Link {
	t.Helper()
	v := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: name, MTU: 1400, TxQLen: -1},
		PeerName:      name,
		PeerNamespace: netlink.NsFd(p.host.file.Fd()),
	}
	must(t, p.ns.LinkAdd(v))
	up(t, p.host, name)
	return p.address(t, name, addrs...)
}

// address gives a link addresses and brings it up.
func (p *pod) address(t *testing.T, name string, addrs ...string) netlink.Link {
	t.Helper()
	l := up(t, p.ns, name)
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		must(t, err)
		addr.Flags = unix.IFA_F_NODAD
		must(t, p.ns.AddrAdd(l, addr))
	}
	return l
}

// settle waits until the kernel has made the routes of all IPv6 addresses,
// which it does only when the link has a carrier.
func settle(t *testing.T, ns *namespace) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !settled(t, ns) {
		if time.Now().After(deadline) {
			t.Fatalf("the namespace does not settle:\n%s", list(t, ns))
		}
		time.Sleep(time.Millisecond)
	}
}

func settled(t *testing.T, ns *namespace) bool {
	t.Helper()
	addrs, err := ns.AddrList(nil, netlink.FAMILY_V6)
	must(t, err)
	routes, err := ns.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Table: unix.RT_TABLE_LOCAL}, netlink.RT_FILTER_TABLE)
	must(t, err)
	there := make(map[string]bool)
	for _, r := range routes {
		there[fmt.Sprint(r.LinkIndex, " ", r.Dst)] = true
	}
	for _, a := range addrs {
		if a.Flags&unix.IFA_F_TENTATIVE != 0 || !there[fmt.Sprint(a.LinkIndex, " ", netlink.NewIPNet(a.IP))] {
			return false
		}
	}
	links, err := ns.LinkList()
	must(t, err)
	for _, l := range links {
		a := l.Attrs()
		if l.Type() == "veth" && a.Flags&net.FlagUp != 0 && (a.Flags&net.FlagRunning == 0 || !there[fmt.Sprint(a.Index, " ff00::/8")]) {
			return false
		}
	}
	return true
}

func up(t *testing.T, ns *namespace, name string) netlink.Link {
	t.Helper()
	l := linkOf(t, ns, name)
	must(t, ns.LinkSetIP6AddrGenMode(l, 1)) // no link-local address, which would come later
	must(t, ns.LinkSetUp(l))
	return l
}

func linkOf(t *testing.T, ns *namespace, name string) netlink.Link {
	t.Helper()
	l, err := ns.LinkByName(name)
	must(t, err)
	return l
}

func (p *pod) route(t *testing.T, r netlink.Route, dst, gw string) {
	t.Helper()
	if dst != "" {
		_, n, err := net.ParseCIDR(dst)
		must(t, err)
		r.Dst = n
	}
	if gw != "" {
		r.Gw = net.ParseIP(gw)
	}
	must(t, p.ns.RouteAdd(&r))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// machine is a VM that keeps duplicates of the queues it is given, as QEMU
// does, and that can detach devices.
type machine struct {
	*fake.VM
	taps     map[string][]*os.File
	order    []string
	detached []string
	detach   error
	// unanswered, if it is set, is called by Attach, which then fails with its error
	// although it has attached the NIC.
	unanswered func() error
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	var m fake.Monitor
	return newMachineOf(t, &m)
}

func newMachineOf(t *testing.T, m *fake.Monitor) *machine {
	t.Helper()
	vm, err := m.Launch(t.Context(), hypervisor.Spec{ID: "s1"})
	must(t, err)
	vms := m.VMs()
	_ = vm
	res := &machine{VM: vms[len(vms)-1], taps: make(map[string][]*os.File)}
	t.Cleanup(res.end)
	return res
}

func (m *machine) Attach(ctx context.Context, d hypervisor.Device) error {
	if err := m.VM.Attach(ctx, d); err != nil {
		return err
	}
	nic := d.(hypervisor.NIC)
	for _, f := range nic.Taps {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		unix.SetNonblock(fd, true)
		m.taps[nic.ID] = append(m.taps[nic.ID], os.NewFile(uintptr(fd), f.Name()))
	}
	m.order = append(m.order, nic.ID)
	if m.unanswered != nil {
		return m.unanswered()
	}
	return nil
}

func (m *machine) Detach(ctx context.Context, id string) error {
	if err := cmp.Or(m.detach, ctx.Err()); err != nil {
		return err
	}
	if m.taps[id] == nil {
		return errdefs.ErrNotFound
	}
	m.detached = append(m.detached, id)
	closeAll(m.taps[id])
	delete(m.taps, id)
	return nil
}

// end closes what the machine has open.
func (m *machine) end() {
	for _, files := range m.taps {
		closeAll(files)
	}
	clear(m.taps)
}

// inventory lists what a namespace holds: links with addresses and flags,
// qdiscs, filters, routes, neighbours. It waits for the kernel's delayed work.
func inventory(t *testing.T, ns *namespace) string {
	t.Helper()
	settle(t, ns)
	return list(t, ns)
}

func list(t *testing.T, ns *namespace) string {
	t.Helper()
	var lines []string
	links, err := ns.LinkList()
	must(t, err)
	for _, l := range links {
		a := l.Attrs()
		lines = append(lines, fmt.Sprintf("link %d %s %s %s mtu %d flags %x", a.Index, a.Name, l.Type(), a.HardwareAddr, a.MTU, a.RawFlags))
		qdiscs, err := ns.qdiscs(a.Index)
		must(t, err)
		for _, q := range qdiscs {
			lines = append(lines, fmt.Sprintf("qdisc %s of %s: %x %x", q.Type(), a.Name, q.Attrs().Handle, q.Attrs().Parent))
		}
		filters, err := ns.filters(a.Index)
		must(t, err)
		for _, f := range filters {
			lines = append(lines, fmt.Sprintf("filter %s of %s: %d", f.Type(), a.Name, f.Attrs().Priority))
		}
	}
	addrs, err := ns.AddrList(nil, netlink.FAMILY_ALL)
	must(t, err)
	for _, a := range addrs {
		lines = append(lines, fmt.Sprintf("address %d %s peer %v scope %d flags %x label %s lft %d %d", a.LinkIndex, a.IPNet, a.Peer, a.Scope, a.Flags, a.Label, a.ValidLft, a.PreferedLft))
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := ns.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_TABLE)
		must(t, err)
		for _, r := range routes {
			lines = append(lines, fmt.Sprintf("route %+v", r.String()))
		}
	}
	neighs, err := ns.NeighListExecute(netlink.Ndmsg{State: netlink.NUD_PERMANENT})
	must(t, err)
	for _, n := range neighs {
		lines = append(lines, fmt.Sprintf("neighbour %d %s", n.LinkIndex, n.String()))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// open opens a pod's network and closes it at the test's end.
func (p *pod) open(t *testing.T, opts Options) *Network {
	t.Helper()
	opts.Namespace = p.path
	n, err := Open(opts)
	must(t, err)
	t.Cleanup(func() { n.Close(context.Background()) })
	return n
}
