package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/containerd/log"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// NetworkSpec is what the engine says of a pod's network.
type NetworkSpec struct {
	// Namespace is the path of the pod's network namespace. Empty: the pod
	// has none of its own, and the VM process's is looked at, where Docker
	// puts links later.
	Namespace string
	// ResolvConf is the host path of the pod's resolv.conf, for the guest's
	// own resolver; empty leaves it without.
	ResolvConf string
}

// NetworkOptions say how a pod's network namespace is joined to its VM.
type NetworkOptions struct {
	// Namespace is the path of the network namespace.
	Namespace string
	// Queues is the number of queue pairs of each NIC, at least one.
	Queues int
	// Save keeps on disk what must be known to undo what is about to be
	// made in the namespace; the platform's CleanNetwork gets it should this
	// process die. It is called before anything is changed.
	Save func(made []byte) error
}

// Network joins the links of a network namespace to a VM.
type Network interface {
	// Plug gives the VM a NIC for each link that has none yet, and takes
	// those away whose link is gone. An error is about some links; what State
	// says is true all the same.
	Plug(ctx context.Context, vm hypervisor.VM) error
	// State is what the guest must be told: the interfaces, routes and
	// neighbours as of the last Plug.
	State() *api.SetNetworkRequest
	// Watch calls changed, by one goroutine, soon after something in the
	// namespace has changed, until ctx ends; and again, ever more rarely, when
	// changed fails.
	Watch(ctx context.Context, changed func() error) error
	// Close takes away what was made in the namespace. It may be called
	// again.
	Close(ctx context.Context) error
}

// openNetwork opens the pod's network namespace, if the engine made one: a
// namespace that is gone, or the host's, fails the boot before it costs
// anything.
func (s *Sandbox) openNetwork(ctx context.Context) error {
	if s.netns() == "" {
		return nil
	}
	return s.openNetworkAt(ctx, s.netns())
}

// netns is the path of the network namespace that the engine made, if the
// sandbox has to do with it.
func (s *Sandbox) netns() string {
	if !s.networked() {
		return ""
	}
	return s.opts.Network.Namespace
}

// podNetns is the path of the network namespace that the guest's network
// follows: the engine's, else the VM process's own. Empty for none.
func (s *Sandbox) podNetns() string {
	if ns := s.netns(); ns != "" || !s.networked() {
		return ns
	}
	return fmt.Sprintf("/proc/%d/ns/net", s.vm.PID())
}

// networked reports whether the sandbox's network namespace is looked at.
func (s *Sandbox) networked() bool {
	return s.platform.OpenNetwork != nil && !s.opts.Config.Runtime.DisableNewNetNS
}

func (s *Sandbox) openNetworkAt(ctx context.Context, namespace string) error {
	net, err := s.platform.OpenNetwork(ctx, s.opts.Config, NetworkOptions{
		Namespace: namespace,
		Queues:    int(s.sizing.Initial().VCPUs),
		Save: func(made []byte) error {
			return s.state.Update(func(r *persist.Record) { r.NetNS, r.Network = namespace, made })
		},
	})
	if err != nil {
		return err
	}
	s.network = net
	return nil
}

func (s *Sandbox) closeNetwork(ctx context.Context) error {
	if s.network == nil {
		return nil
	}
	return s.network.Close(ctx)
}

// plugNetwork gives the VM its NICs before its first instruction. Without a
// namespace of the engine's the VM process's own is the pod's.
func (s *Sandbox) plugNetwork(ctx context.Context) error {
	if !s.networked() {
		return nil
	}
	if s.network == nil {
		if err := s.openNetworkAt(ctx, s.podNetns()); err != nil {
			return err
		}
	}
	return s.network.Plug(ctx, s.vm)
}

// setNetwork tells the guest what its network is to be.
func (s *Sandbox) setNetwork(ctx context.Context) error {
	want := &api.SetNetworkRequest{}
	if s.network != nil {
		want = proto.CloneOf(s.network.State())
	}
	dns, err := readDNS(s.opts.Network.ResolvConf)
	if err != nil {
		return err
	}
	want.Hostname, want.Dns = s.opts.Hostname, dns
	changes, err := s.client.SetNetwork(ctx, want)
	if err != nil {
		return err
	}
	for _, c := range changes {
		log.G(ctx).WithField("source", "agent").Debugf("network: %s", c)
	}
	return nil
}

// watchNetwork follows the namespace while the sandbox lives: links that come
// late are given to the guest, those that go are taken from it.
func (s *Sandbox) watchNetwork() {
	err := s.network.Watch(s.lifeCtx, func() error {
		ctx, cancel := context.WithTimeout(s.lifeCtx, s.opts.Config.Runtime.CreateContainerTimeout)
		defer cancel()
		// A link that cannot be joined does not keep the guest from the rest.
		err := errors.Join(s.network.Plug(ctx, s.vm), s.setNetwork(ctx))
		s.followResolvers(ctx)
		if err != nil && s.lifeCtx.Err() == nil && !s.gone() {
			log.G(s.lifeCtx).WithError(err).Error("the guest could not follow a change of the pod's network")
		}
		return err
	})
	if err != nil && s.lifeCtx.Err() == nil {
		log.G(s.lifeCtx).WithError(err).Error("the pod's network is not watched any more")
	}
}

// Forwarder brings connections to the pod's loopback address, made on the
// host in the pod's network namespace, into the guest.
type Forwarder interface {
	// Exempt leaves an IPv4 loopback address to what listens there in the
	// namespace.
	Exempt(addr netip.Addr) error
	Close() error
}

// ForwardFunc connects to a TCP address of the guest's, as in
// api.ForwardOpen.
type ForwardFunc func(ctx context.Context, address string) (guest.Conn, error)

// openForward makes the guest's ports answer in the pod's network namespace.
// A kernel that cannot do it costs no more than that.
func (s *Sandbox) openForward(ctx context.Context) error {
	if s.platform.OpenForward == nil || s.netns() == "" {
		return nil
	}
	f, err := s.platform.OpenForward(ctx, s.netns(), s.dialForward)
	if err != nil {
		log.G(ctx).WithError(err).Warn("ports of the guest cannot be reached by port-forward")
		return nil
	}
	s.forward = f
	return nil
}

func (s *Sandbox) closeForward(context.Context) error {
	err := s.resolvers.close()
	if s.forward == nil {
		return err
	}
	return errors.Join(err, s.forward.Close())
}

// dialForward connects to a TCP port of the guest's; address is as in
// api.ForwardOpen.
func (s *Sandbox) dialForward(ctx context.Context, address string) (guest.Conn, error) {
	return s.client.Forward(ctx, address)
}
