package virtcontainers_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/internal/hungfs"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/network"
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/podnet"
)

// netInMemory is a pod's network in memory: what it should be is set by the test.
type netInMemory struct {
	options network.Options
	changed chan struct{}
	// followed receives the result of each change.
	followed chan error

	mu      sync.Mutex // guards what follows
	state   *api.SetNetworkRequest
	plugged int
	plugErr error
	// onPlug is called by Plug, if it is not nil.
	onPlug func()
	// unplugErr is Unplug's answer.
	unplugErr error
	closed    int
}

func newNetwork() *netInMemory {
	return &netInMemory{changed: make(chan struct{}), followed: make(chan error, 10), state: &api.SetNetworkRequest{
		Interfaces: []*api.Interface{{Name: "eth0", PciPath: "01/02", Mtu: 1400}},
		Routes:     []*api.Route{{Interface: "eth0", Destination: "0.0.0.0/0", Gateway: "10.0.0.1"}},
	}}
}

// platform returns p with this network.
func (n *netInMemory) platform(p virtcontainers.Platform) virtcontainers.Platform {
	p.OpenNetwork = func(o network.Options) (podnet.Links, error) {
		n.options = o
		return n, nil
	}
	return p
}

func (n *netInMemory) Plug(ctx context.Context, vm network.Machine) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.plugged++
	if n.onPlug != nil {
		n.onPlug()
	}
	if n.plugErr != nil {
		return n.plugErr
	}
	if n.plugged > 1 {
		return nil
	}
	if err := n.options.Save([]byte(`{"tap":"tap2_kata"}`)); err != nil {
		return err
	}
	return vm.Attach(ctx, hypervisor.NIC{ID: "net-2"})
}

func (n *netInMemory) Unplug(ctx context.Context, vm network.Machine) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.unplugErr != nil {
		return n.unplugErr
	}
	n.plugged = 0
	return vm.Detach(ctx, "net-2")
}

func (n *netInMemory) Replug(ctx context.Context, vm network.Machine) error { return n.Plug(ctx, vm) }

func (n *netInMemory) State() *api.SetNetworkRequest {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state
}

func (n *netInMemory) Watch(ctx context.Context, changed func() error) error {
	for {
		select {
		case <-n.changed:
			n.followed <- changed()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Doorbell never rings: no packets come here.
func (n *netInMemory) Doorbell(context.Context) (*network.Doorbell, error) {
	return new(network.Doorbell), nil
}

func (n *netInMemory) Close(context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed++
	return nil
}

func (n *netInMemory) isClosed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closed > 0
}

func (n *netInMemory) setMTU(mtu uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state = proto.CloneOf(n.state)
	n.state.Interfaces[0].Mtu = mtu
}

// The guest gets its whole network before its first container, and again when
// it changes; the network is closed when the guest ends.
func TestNetwork(t *testing.T) {
	host, net := newHost(t), newNetwork()
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver 10.0.0.10\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	opts := options(newObserver())
	opts.Network = podnet.Spec{Namespace: "/run/netns/pod", ResolvConf: resolv}
	s, err := virtcontainers.New(t.Context(), net.platform(host.Platform()), opts)
	if err != nil {
		t.Fatal(err)
	}
	if net.options.Namespace != "/run/netns/pod" || net.options.Queues != 1 || host.VM().Spec.NetworkNamespace != "/run/netns/pod" {
		t.Errorf("network opened with %+v, machine with %+v", net.options, host.VM().Spec)
	}
	want := proto.CloneOf(net.State())
	want.Hostname, want.Dns = "host", &api.DNS{Servers: []string{"10.0.0.10"}}
	if diff := cmp.Diff(want, host.Agent.Network(), protocmp.Transform()); diff != "" {
		t.Errorf("the guest was told: %s", diff)
	}
	rec, err := persist.Load(host.Platform().StateDir(), sandboxID)
	if err != nil || rec.NetNS != "/run/netns/pod" || !strings.Contains(string(rec.Network), "tap2_kata") {
		t.Errorf("record %+v: %v", rec, err)
	}
	net.setMTU(9000)
	net.changed <- struct{}{}
	if err := await(t, "the new MTU", net.followed); err != nil || host.Agent.Network().Interfaces[0].Mtu != 9000 {
		t.Errorf("the guest has %v: %v", host.Agent.Network(), err)
	}
	host.Agent.Fail("SetNetwork", errInjected)
	net.changed <- struct{}{}
	if err := await(t, "a change that the guest refuses", net.followed); err == nil {
		t.Error("a change that the guest refused is not tried again")
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if !net.isClosed() {
		t.Error("the network is open")
	}
}

// A pod starts whatever its resolv.conf is, and follows its network when the file
// is gone: the guest's own resolver has no settings then.
func TestNetworkWithoutResolvConf(t *testing.T) {
	for _, path := range []string{"/dev/null", filepath.Join(t.TempDir(), "gone")} {
		host, net := newHost(t), newNetwork()
		opts := options(newObserver())
		opts.Network = podnet.Spec{Namespace: "/run/netns/pod", ResolvConf: path}
		s, err := virtcontainers.New(t.Context(), net.platform(host.Platform()), opts)
		if err != nil {
			t.Fatal(err)
		}
		net.setMTU(9000)
		net.changed <- struct{}{}
		if err := await(t, "the new MTU", net.followed); err != nil {
			t.Error(err)
		}
		if got := host.Agent.Network(); got.Hostname != "host" || got.Dns != nil || got.Interfaces[0].Mtu != 9000 {
			t.Errorf("%s: the guest was told %v", path, got)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A resolv.conf on a file system that hangs, which the watch of the network reads,
// does not hold up the sandbox's end.
func TestResolvConfHangs(t *testing.T) {
	host, net := newHost(t), newNetwork()
	hung, release := hungfs.Mount(t)
	t.Cleanup(release)
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.Symlink("/dev/null", resolv); err != nil {
		t.Fatal(err)
	}
	opts := options(newObserver())
	opts.Network = podnet.Spec{Namespace: "/run/netns/pod", ResolvConf: resolv}
	s, err := virtcontainers.New(t.Context(), net.platform(host.Platform()), opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(resolv), os.Symlink(filepath.Join(hung, "resolv.conf"), resolv)); err != nil {
		t.Fatal(err)
	}
	net.changed <- struct{}{}
	(&pod{Sandbox: s, t: t}).stopsSoon()
}

// Without a namespace from the engine, the pod uses the VM process's.
func TestNetworkOfTheVM(t *testing.T) {
	host, net := newHost(t), newNetwork()
	s, err := virtcontainers.New(t.Context(), net.platform(host.Platform()), options(newObserver()))
	if err != nil {
		t.Fatal(err)
	}
	if ns := net.options.Namespace; !strings.HasPrefix(ns, "/proc/") || !strings.HasSuffix(ns, "/ns/net") {
		t.Errorf("network of %s", ns)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// A network that cannot be plugged fails the boot and is closed.
func TestNetworkFails(t *testing.T) {
	host, net := newHost(t), newNetwork()
	net.plugErr = errInjected
	_, err := virtcontainers.New(t.Context(), net.platform(host.Platform()), options(newObserver()))
	wantError(t, "boot", err, func(error) bool { return true }, "network: injected")
	if !net.isClosed() {
		t.Error("the network is open")
	}
	host.Agent.Fail("SetNetwork", errdefs.ErrInvalidArgument)
	net.plugErr = nil
	_, err = virtcontainers.New(t.Context(), net.platform(host.Platform()), options(newObserver()))
	wantError(t, "boot", err, errdefs.IsInvalidArgument, "guest: set up the guest's network")
}

// The operator may set up the network.
func TestNetworkDisabled(t *testing.T) {
	host, net := newHost(t), newNetwork()
	opts := options(newObserver())
	opts.Config.Runtime.DisableNewNetNS, opts.Network.Namespace = true, "/run/netns/pod"
	s, err := virtcontainers.New(t.Context(), net.platform(host.Platform()), opts)
	if err != nil {
		t.Fatal(err)
	}
	if net.plugged != 0 || host.VM().Spec.NetworkNamespace != "" {
		t.Error("the namespace was looked at, or entered")
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// What a dead shim made in a network namespace is removed by its record.
func TestRecoverNetwork(t *testing.T) {
	host := newHost(t)
	platform := host.Platform()
	store, err := persist.Create(platform.StateDir(), platform.Owner, sandboxID)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Update(func(r *persist.Record) { r.NetNS, r.Network = "/run/netns/pod", []byte(`{"tap":1}`) }); err != nil {
		t.Fatal(err)
	}
	var cleaned []string
	platform.CleanNetwork = func(namespace string, made []byte) error {
		cleaned = append(cleaned, namespace)
		return nil
	}
	for range 2 {
		if _, err := virtcontainers.Recover(platform, sandboxID, sandboxID, patience); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"/run/netns/pod"}, cleaned); diff != "" {
		t.Error(diff)
	}
}

// An engine may make the network between a container's creation and its start: its
// process finds all of it. A guest that has it is not told again.
func TestNetworkMadeBeforeStart(t *testing.T) {
	for name, changed := range map[string]bool{"changed": true, "as before": false} {
		t.Run(name, func(t *testing.T) {
			host, net := newHost(t), newNetwork()
			p, err := bootOn(t, host, net.platform(host.Platform()), func(*virtcontainers.Options) {})
			if err != nil {
				t.Fatal(err)
			}
			c := p.create(sandboxID)
			calls := len(host.Agent.Calls())
			want := []string{"Start " + sandboxID}
			if changed {
				net.setMTU(9000) // unseen by the watch, as a moment before
				want = []string{"SetNetwork", "Start " + sandboxID}
			}
			p.start(initOf(t, c))
			var order []string
			for _, call := range host.Agent.Calls()[calls:] {
				if strings.HasPrefix(call, "SetNetwork") || strings.HasPrefix(call, "Start") {
					order = append(order, call)
				}
			}
			if diff := cmp.Diff(want, order); diff != "" {
				t.Errorf("calls to the guest: %s", diff)
			}
		})
	}
}

// A guest that does not take the network in time fails the start. The time is the
// operator's, whatever the pod's annotation.
func TestNetworkThatIsNotTaken(t *testing.T) {
	host, net := newHost(t), newNetwork()
	p, err := bootOn(t, host, net.platform(host.Platform()), func(o *virtcontainers.Options) {
		o.Config.Runtime.CreateContainerTimeout = 2 * time.Second
		o.Config = withLongCreates(t, o.Config)
	})
	if err != nil {
		t.Fatal(err)
	}
	c := p.create(sandboxID)
	net.setMTU(9000)
	host.Agent.Hook("SetNetwork", func(ctx context.Context, _ proto.Message) error {
		<-ctx.Done()
		return ctx.Err()
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = initOf(t, c).Start(ctx, func(virtcontainers.ProcessInfo) { t.Error("it was started") })
	wantError(t, "start", err, isError, "give the guest the network of its namespace")
	if ctx.Err() != nil {
		t.Error("only the engine's deadline ended the start")
	}
	host.Agent.Hook("SetNetwork", nil)
	p.start(initOf(t, c)) // it may be started again
}
