package podnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/internal/ctxmutex"
	"github.com/katabox/katabox/internal/intime"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/forward"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/netns"
	"github.com/katabox/katabox/virtcontainers/network"
)

// Spec is what the engine says about a pod's network.
type Spec struct {
	// Namespace is the path of the pod's network namespace. Empty: the engine
	// made none, and the VM process's own is used, into which Docker moves
	// links later.
	Namespace string
	// ResolvConf is the host path of the pod's resolv.conf, for the guest's
	// own resolver; empty leaves it without.
	ResolvConf string
}

// Links joins the links of a network namespace to a VM; network.Network is one.
type Links interface {
	// Plug gives the VM a NIC for each link that has none yet, and removes
	// those whose link is gone. An error concerns single links; State is valid
	// even then.
	Plug(ctx context.Context, vm network.Machine) error
	// Unplug removes all NICs until Replug, which is Plug then.
	Unplug(ctx context.Context, vm network.Machine) error
	Replug(ctx context.Context, vm network.Machine) error
	// State returns what the guest must be told: the interfaces, routes and
	// neighbours as of the last Plug. The caller must not change it.
	State() *api.SetNetworkRequest
	// Watch calls changed, in one goroutine, soon after something in the
	// namespace has changed, until ctx ends; and again, with growing pauses, if
	// changed fails.
	Watch(ctx context.Context, changed func() error) error
	// Doorbell listens for packets to the pod, on the links that have a NIC now.
	// The caller closes it.
	Doorbell(ctx context.Context) (*network.Doorbell, error)
	// Close undoes what was made in the namespace. It may be called again.
	Close(ctx context.Context) error
}

// OpenFunc opens a network namespace; network.Open is one.
type OpenFunc func(network.Options) (Links, error)

// Forwarder brings connections to the pod's loopback address, made on the
// host in the pod's network namespace, into the guest; forward.Forwarder is one.
type Forwarder interface {
	// Exempt leaves an IPv4 loopback address to processes that listen in the
	// namespace.
	Exempt(addr netip.Addr) error
	Close() error
}

// ForwardFunc starts a Forwarder in a network namespace; forward.Open is one.
type ForwardFunc func(ctx context.Context, namespace string, dial forward.DialFunc) (Forwarder, error)

// Options describe a pod's network.
type Options struct {
	Spec     Spec
	Hostname string
	Config   *config.Config
	// Open is nil for pods without network, and OpenForward for pods whose
	// ports are not forwarded.
	Open        OpenFunc
	OpenForward ForwardFunc
	// Pass is what a change of the network passes before the machine is asked for
	// anything: it may be paused.
	Pass guest.Pass
	// Queues is the number of queue pairs of each NIC, at least one.
	Queues int
	// Save writes to disk what must be undone in a namespace should this
	// process die. It is called before anything is changed there.
	Save func(namespace string, made []byte) error
}

// Pod is a pod's network. New, Open, Plug, Connect and Forward are called once
// each, in this order; the other methods may be called concurrently.
type Pod struct {
	opts Options

	// Set by the boot; not changed afterwards.
	vm hypervisor.VM
	// namespace is the path of the namespace of links; empty for none.
	namespace string
	links     Links     // nil for none
	forward   Forwarder // nil for none
	client    *guest.Client
	gone      func() bool

	resolvers resolvers
	// telling is held while the guest is told: it applies concurrent calls in any
	// order, and the newest state must be the last.
	telling ctxmutex.Mutex
	// told is what the guest has; nil if that is not known. telling guards it.
	told *api.SetNetworkRequest
	// dns is the last resolv.conf that could be read. telling guards it.
	dns *api.DNS
	// refusal is the watch's last: package network returns it only once.
	refusal atomic.Pointer[refusal]
}

// New describes a network; it does nothing yet.
func New(opts Options) *Pod { return &Pod{opts: opts, telling: ctxmutex.New()} }

// enabled reports whether the pod's network namespace is used at all.
func (p *Pod) enabled() bool {
	return p.opts.Open != nil && !p.opts.Config.Runtime.DisableNewNetNS
}

// EngineNamespace is the path of the network namespace that the engine made;
// empty if it made none or the configuration says not to use it.
func (p *Pod) EngineNamespace() string {
	if !p.enabled() {
		return ""
	}
	return p.opts.Spec.Namespace
}

// OpenNamespace opens the network namespace for processes of the pod on the
// host: the one that the guest's network follows, or, in a pod without network,
// that of the VM's process. It returns nil instead of the host's. The caller
// closes the file. It may be called after Plug.
func (p *Pod) OpenNamespace() (*os.File, error) {
	f, err := netns.Open(cmp.Or(p.namespace, vmNamespace(p.vm)))
	if errors.Is(err, netns.ErrHost) {
		return nil, nil //nolint:nilnil // none
	}
	return f, err
}

func vmNamespace(vm hypervisor.VM) string { return fmt.Sprintf("/proc/%d/ns/net", vm.PID()) }

// Open opens the pod's network namespace, if the engine made one: a namespace
// that is gone, or the host's, fails the boot before it costs anything. Close
// undoes it, and what Plug did.
func (p *Pod) Open(context.Context) error {
	namespace := p.EngineNamespace()
	if namespace == "" {
		return nil
	}
	return p.join(namespace)
}

func (p *Pod) join(namespace string) error {
	c := p.opts.Config
	links, err := p.opts.Open(network.Options{
		Namespace: namespace,
		Model:     network.Model(c.Runtime.NetworkModel),
		Queues:    p.opts.Queues,
		VhostNet:  !c.Hypervisor.DisableVhostNet,
		RxRate:    c.Hypervisor.RxMaxRate,
		TxRate:    c.Hypervisor.TxMaxRate,
		Save:      func(made []byte) error { return p.opts.Save(namespace, made) },
	})
	if err != nil {
		return err
	}
	p.links, p.namespace = links, namespace
	return nil
}

// Close undoes what was made in the namespace. The VM should have ended.
func (p *Pod) Close(ctx context.Context) error {
	if p.links == nil {
		return nil
	}
	return p.links.Close(ctx)
}

// Doorbell listens for packets to the pod; in a pod without links it never rings.
// The caller closes it.
func (p *Pod) Doorbell(ctx context.Context) (*network.Doorbell, error) {
	if p.links == nil {
		return new(network.Doorbell), nil
	}
	return p.links.Doorbell(ctx)
}

// Plug gives the VM its NICs, before its first instruction. If the engine made
// no namespace, it opens that of the VM's process.
func (p *Pod) Plug(ctx context.Context, vm hypervisor.VM) error {
	p.vm = vm
	if !p.enabled() {
		return nil
	}
	if p.links == nil {
		if err := p.join(vmNamespace(vm)); err != nil {
			return err
		}
	}
	return p.links.Plug(ctx, vm)
}

// Connect sets the agent; gone reports whether the guest has ended.
func (p *Pod) Connect(client *guest.Client, gone func() bool) { p.client, p.gone = client, gone }

// Forward makes the guest's ports answer in the engine's network namespace. A
// kernel that cannot do it is no error: it is logged. StopForward undoes it.
func (p *Pod) Forward(ctx context.Context) error {
	if p.opts.OpenForward == nil || p.EngineNamespace() == "" {
		return nil
	}
	f, err := p.opts.OpenForward(ctx, p.EngineNamespace(), p.client.Forward)
	if err != nil {
		log.G(ctx).WithError(err).Warn("ports of the guest cannot be reached by port-forward")
		return nil
	}
	p.forward = f
	return nil
}

// StopForward ends the forwarding of ports and of resolvers. It gives up a resolver
// that is being opened, and does not wait for it after ctx.
func (p *Pod) StopForward(ctx context.Context) error {
	err := p.resolvers.close(ctx)
	if p.forward == nil {
		return err
	}
	return errors.Join(err, p.forward.Close())
}

// Tell sends the guest its whole network.
func (p *Pod) Tell(ctx context.Context) error { return p.tell(ctx, false) }

// tell is Tell; onlyNews leaves out a call that would tell the guest what it has.
func (p *Pod) tell(ctx context.Context, onlyNews bool) error {
	if err := p.telling.Lock(ctx); err != nil {
		return fmt.Errorf("tell the guest its network: wait for the call before: %w", err)
	}
	defer p.telling.Unlock()
	want := p.wanted(ctx)
	if onlyNews && proto.Equal(want, p.told) {
		return nil
	}
	p.told = nil
	changes, err := p.client.SetNetwork(ctx, want)
	if err != nil {
		return err
	}
	p.told = want
	for _, c := range changes {
		log.G(ctx).WithField("source", "agent").Debugf("network: %s", c)
	}
	return nil
}

// wanted is the network that the guest is to have, as of the last Plug. The caller
// holds telling.
func (p *Pod) wanted(ctx context.Context) *api.SetNetworkRequest {
	want := &api.SetNetworkRequest{}
	if p.links != nil {
		want = proto.CloneOf(p.links.State())
	}
	dns, err := readDNS(ctx, p.opts.Spec.ResolvConf)
	switch {
	case errors.Is(err, intime.ErrUnanswered), errdefs.IsUnavailable(err):
		log.G(ctx).WithError(err).Warn("the guest's own resolver keeps its settings")
	case err != nil: // /dev/null, or gone by now: containers have it as it is
		log.G(ctx).WithError(err).Warn("the guest's own resolver has no settings")
		p.dns = nil
	default:
		p.dns = dns
	}
	want.Hostname, want.Dns = p.opts.Hostname, p.dns
	return want
}

// Refresh brings the guest up to date with the namespace, whatever the watch has seen
// of it so far. The guest is not called if there is nothing new. It fails for a link
// that cannot have a NIC and that was not there at the time given, also if the watch
// has met it first.
func (p *Pod) Refresh(ctx context.Context, since time.Time) error {
	if p.links == nil {
		return nil
	}
	ctx, leave, err := p.pass(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := p.links.Plug(ctx, p.vm); err != nil {
		return err
	}
	if r := p.refusal.Load(); r != nil && r.at.After(since) {
		return r.err
	}
	return p.tell(ctx, true)
}

// pass waits until the machine runs, and bounds what follows: a guest may answer other
// calls and not this one, and the machine waits for leave before it is paused or saved.
// So the bound is the operator's, without annotations. leave must be called.
func (p *Pod) pass(ctx context.Context) (bounded context.Context, leave func(), err error) {
	done, err := p.opts.Pass(ctx, "a change of its network")
	if err != nil {
		return nil, nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, p.opts.Config.WithoutAnnotations().Runtime.CreateContainerTimeout)
	return bounded, func() {
		cancel()
		done()
	}, nil
}

// refusal is why the watch could not join a link.
type refusal struct {
	err error
	at  time.Time
}

// Unplug takes the VM's NICs and ends the forwarding of resolvers until Replug:
// the machine is about to be saved.
func (p *Pod) Unplug(ctx context.Context) error {
	err := p.resolvers.closeAll()
	if p.links == nil {
		return err
	}
	return errors.Join(err, p.links.Unplug(ctx, p.vm))
}

// Replug gives the VM its NICs again, and tells the guest. The resolvers are opened
// again by OpenResolvers.
func (p *Pod) Replug(ctx context.Context) error {
	if p.links == nil {
		return nil
	}
	// The guest gets the rest even if a link cannot be joined.
	return errors.Join(p.links.Replug(ctx, p.vm), p.Tell(ctx))
}
