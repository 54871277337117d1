package network

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/internal/ctxmutex"
)

// Model is how a link of the namespace is joined to its NIC; the names are
// those of Kata Containers' internetworking_model.
type Model string

// The models; the package comment describes them.
const (
	TCFilter Model = "tcfilter"
	Macvtap  Model = "macvtap"
	None     Model = "none"
)

// maxQueues is the most queues that a tap can have: MAX_TAP_QUEUES in the
// kernel's drivers/net/tun.c.
const maxQueues = 256

// Options say which namespace is joined, and how.
type Options struct {
	// Namespace is the path of the network namespace.
	Namespace string
	// Model is TCFilter when it is empty.
	Model Model
	// Queues is the number of queue pairs of each NIC, 1 to 256; 0 is 1.
	Queues int
	// VhostNet lets the host's kernel carry the packets if it has
	// /dev/vhost-net; without that device the VMM carries them.
	VhostNet bool
	// RxRate bounds what a NIC receives, TxRate what it sends, in bits per
	// second; 0 is no bound.
	RxRate, TxRate uint64
	// Save stores what Clean needs if this process dies. It is called before
	// anything is changed in the namespace; on an error nothing is changed. nil
	// stores nothing.
	Save func(made []byte) error
}

// Machine is what the NICs need of a hypervisor.VM.
type Machine interface {
	hypervisor.Attacher
	hypervisor.Detacher
	PCIPath(id string) (hypervisor.PCIPath, error)
}

// Network joins the links of one network namespace to one VM. Its methods may
// be called from several goroutines.
type Network struct {
	opts Options

	// changes guards what follows. It is held across calls to the VM.
	changes ctxmutex.Mutex
	ns      *namespace
	nics    map[int]*nic // by the index of the link
	ids     map[string]bool
	told    map[string]bool // what was already logged or refused
	seen    string          // the namespace's state at the watch's last look, or the first Plug
	owes    bool            // the last call of Watch's function failed: the next Watch repeats it; Watch's alone
	closed  bool
	away    bool // the VM is to have no NICs: see Unplug

	mu    sync.Mutex // guards state
	state *api.SetNetworkRequest
}

// Open opens a network namespace, which stays open, and so alive, until
// Close. It changes nothing there. It fails with errdefs.ErrInvalidArgument
// for the host's namespace and for invalid options, with errdefs.ErrNotFound
// for a path that does not exist.
func Open(opts Options) (*Network, error) {
	if err := opts.complete(); err != nil {
		return nil, fmt.Errorf("join network namespace %s: %w", opts.Namespace, err)
	}
	ns, err := openNamespace(opts.Namespace)
	if err != nil {
		return nil, err
	}
	n := &Network{
		opts: opts, ns: ns, changes: ctxmutex.New(),
		nics: make(map[int]*nic), ids: make(map[string]bool), told: make(map[string]bool),
		state: &api.SetNetworkRequest{},
	}
	return n, nil
}

func (o *Options) complete() error {
	switch o.Model {
	case "":
		o.Model = TCFilter
	case TCFilter, Macvtap, None:
	default:
		return fmt.Errorf("model %q: want %s, %s or %s: %w", o.Model, TCFilter, Macvtap, None, errdefs.ErrInvalidArgument)
	}
	if o.Queues < 0 || o.Queues > maxQueues {
		return fmt.Errorf("%d queue pairs: want 1 to %d: %w", o.Queues, maxQueues, errdefs.ErrInvalidArgument)
	}
	o.Queues = max(o.Queues, 1)
	if o.Save == nil {
		o.Save = func([]byte) error { return nil }
	}
	return o.checkRates()
}

// State returns what the guest must be told: the interfaces, routes, rules and
// neighbours as of the last Plug, in a stable order. The caller must not change
// it.
func (n *Network) State() *api.SetNetworkRequest {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state
}

func (n *Network) setState(state *api.SetNetworkRequest) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state = state
}

// Close removes what was made in the namespace and closes it. The VM should
// have ended; it is not called. Only the first call has an effect.
func (n *Network) Close(ctx context.Context) error {
	if err := n.take(ctx); err != nil {
		if errdefs.IsFailedPrecondition(err) {
			return nil
		}
		return err
	}
	defer n.give()
	n.closed = true
	var errs []error
	for _, c := range n.nics {
		errs = append(errs, n.ns.undo(c.made))
	}
	errs = append(errs, n.ns.close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("leave network namespace %s: %w", n.opts.Namespace, err)
	}
	return nil
}

// take locks changes; give must follow. If it need not wait, it succeeds even
// when ctx has ended, because what was made must be undone. It fails with
// errdefs.ErrFailedPrecondition after Close.
func (n *Network) take(ctx context.Context) error {
	if !n.changes.TryLock() {
		if err := n.changes.Lock(ctx); err != nil {
			return fmt.Errorf("wait for network namespace %s: %w", n.opts.Namespace, err)
		}
	}
	if n.closed {
		n.give()
		return fmt.Errorf("network namespace %s was closed: %w", n.opts.Namespace, errdefs.ErrFailedPrecondition)
	}
	return nil
}

func (n *Network) give() { n.changes.Unlock() }
