package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
)

// abandonTimeout bounds the removal of a NIC whose attaching failed half-way.
const abandonTimeout = 10 * time.Second

// nic is a link's card in the VM.
type nic struct {
	id   string
	path hypervisor.PCIPath
	made joint
	mtu  int // of the tap
	// redirected is set if the link's packets are redirected, also while a repair of that
	// has failed, and made has no Priority.
	redirected bool
	// gone is set if the NIC is to be removed, or has been attached without an answer,
	// and may still be in the VM: its link is gone, or is to get another NIC.
	gone bool
}

// Plug gives the VM a NIC for each link that has an address and no NIC yet, and
// removes those whose link is gone. If joining a link fails, nothing is left of
// it, the others are still joined, and the error names it. A link that cannot
// have a NIC in its current state is reported as an error only once: it must
// not keep the guest from being told about the others. Between Unplug and Replug
// it does nothing.
func (n *Network) Plug(ctx context.Context, vm Machine) error {
	if err := n.take(ctx); err != nil {
		return err
	}
	defer n.give()
	if n.away {
		return nil
	}
	return n.plugNamed(ctx, vm)
}

// Unplug removes all NICs, until Replug. After an error some may still be there.
func (n *Network) Unplug(ctx context.Context, vm Machine) error {
	if err := n.take(ctx); err != nil {
		return err
	}
	defer n.give()
	n.away = true
	if err := n.unplugGone(ctx, vm, new(view)); err != nil {
		return fmt.Errorf("leave network namespace %s: %w", n.opts.Namespace, err)
	}
	return nil
}

// Replug is Plug after Unplug.
func (n *Network) Replug(ctx context.Context, vm Machine) error {
	if err := n.take(ctx); err != nil {
		return err
	}
	defer n.give()
	n.away = false
	return n.plugNamed(ctx, vm)
}

// plugNamed is plug with the namespace's name in an error.
func (n *Network) plugNamed(ctx context.Context, vm Machine) error {
	if err := n.plug(ctx, vm); err != nil {
		return fmt.Errorf("join network namespace %s: %w", n.opts.Namespace, err)
	}
	return nil
}

func (n *Network) plug(ctx context.Context, vm Machine) error {
	found, err := n.look(ctx)
	if err != nil {
		return err
	}
	if n.seen == "" {
		n.seen = found.fingerprint() // later ones are the watch's
	}
	errs := []error{n.refuse(found), n.unplugGone(ctx, vm, found), n.refresh(ctx, found), n.plugNew(ctx, vm, found)}
	state, notes, err := found.describe(n.paths())
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	n.setState(state)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, note := range notes {
		if n.tellOnce(note) {
			log.G(ctx).Infof("not given to the guest: %s", note)
		}
	}
	return nil
}

// look scans the namespace.
func (n *Network) look(ctx context.Context) (*view, error) {
	own := make(map[string]bool)
	for _, c := range n.nics {
		own[c.made.Made], own[c.made.Shaper] = true, true
	}
	found, err := n.ns.scan(ctx, own, func(index int) bool {
		c, joined := n.nics[index]
		return joined && !c.gone
	})
	if err == nil && n.opts.Model == None { // then no packets pass the links
		for i := range found.links {
			found.links[i].down = false
		}
	}
	return found, err
}

// refuse returns the error for links that cannot have a NIC, once for each.
func (n *Network) refuse(found *view) error {
	var errs []error
	for _, index := range slices.Sorted(maps.Keys(found.bad)) {
		if err := found.bad[index]; n.tellOnce(err.Error()) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// tellOnce reports whether it is called with what for the first time.
func (n *Network) tellOnce(what string) bool {
	if n.told[what] {
		return false
	}
	n.told[what] = true
	return true
}

// paths returns the PCI paths of the NICs, by their links.
func (n *Network) paths() map[int]string {
	paths := make(map[int]string)
	for index, c := range n.nics {
		if !c.gone {
			paths[index] = string(c.path)
		}
	}
	return paths
}

// unplugGone removes the NICs whose link is gone. If the VM does not release
// one, the next Plug tries again.
func (n *Network) unplugGone(ctx context.Context, vm Machine, found *view) error {
	var errs []error
	for _, index := range slices.Sorted(maps.Keys(n.nics)) {
		c := n.nics[index]
		if !c.gone && found.has(index) {
			continue
		}
		c.gone = true
		if err := n.unplug(ctx, vm, c); err != nil {
			errs = append(errs, fmt.Errorf("remove NIC %s: %w", c.id, err))
			continue
		}
		delete(n.nics, index)
	}
	return errors.Join(errs...)
}

// unplug removes a NIC from the VM, if the VM can detach, and undoes what was
// made for it.
func (n *Network) unplug(ctx context.Context, vm Machine, c *nic) error {
	err := vm.Detach(ctx, c.id)
	if errdefs.IsNotFound(err) || errdefs.IsNotImplemented(err) {
		err = nil
	}
	return errors.Join(err, n.undo(c))
}

// undo undoes what was made for a NIC. Then it is forgotten: another VM's joint of the
// same link has the same names.
func (n *Network) undo(c *nic) error {
	if err := n.ns.undo(c.made); err != nil {
		return err
	}
	c.made = joint{Link: c.made.Link}
	return nil
}

// refresh brings what was made for links up to date with them.
func (n *Network) refresh(ctx context.Context, found *view) error {
	var errs []error
	for _, l := range found.links {
		c, joined := n.nics[l.index]
		if !joined || c.gone || c.made.Made == "" {
			continue
		}
		if err := errors.Join(n.reconnect(ctx, c, l), n.resize(c, l)); err != nil {
			errs = append(errs, fmt.Errorf("link %s (%s): %w", l.name, l.kind, err))
		}
	}
	return errors.Join(errs...)
}

// resize gives a tap its link's current MTU.
func (n *Network) resize(c *nic, l link) error {
	if c.mtu == l.mtu {
		return nil
	}
	tap, err := n.ns.LinkByName(c.made.Made)
	if err == nil {
		err = n.ns.LinkSetMTU(tap, l.mtu)
	}
	if err != nil {
		return fmt.Errorf("set the MTU of link %s to %d: %w", c.made.Made, l.mtu, err)
	}
	c.mtu = l.mtu
	return nil
}

// plugNew joins the links that have no NIC.
func (n *Network) plugNew(ctx context.Context, vm Machine, found *view) error {
	plans, errs := n.plan(found)
	if len(plans) == 0 {
		return errors.Join(errs...)
	}
	var coming []joint
	for _, p := range plans {
		coming = append(coming, p.want)
	}
	if err := n.save(coming...); err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, p := range plans {
		if err := n.join(ctx, vm, &p); err != nil {
			errs = append(errs, fmt.Errorf("link %s (%s): %w", p.link.name, p.link.kind, err))
		}
	}
	return errors.Join(errs...)
}

// plan is what will be made for one link, and what has been made of that.
type plan struct {
	link link
	want joint
	// made is what to undo. Another VM's joint of the same link has the same
	// names: what was planned but not made must not be removed.
	made joint
}

// plan returns what to make for each link that has no NIC. It changes nothing.
func (n *Network) plan(found *view) (plans []plan, errs []error) {
	for _, l := range found.links {
		if _, joined := n.nics[l.index]; joined {
			continue
		}
		want, err := n.planLink(l)
		if err == nil && len(n.nics)+len(plans) >= api.MaxInterfaces {
			err = fmt.Errorf("a VM has at most %d NICs: %w", api.MaxInterfaces, errdefs.ErrInvalidArgument)
		}
		if isGone(err) {
			continue // it has disappeared meanwhile
		}
		if err != nil {
			err = fmt.Errorf("link %s (%s): %w", l.name, l.kind, err)
			if n.tellOnce(err.Error()) {
				errs = append(errs, err)
			}
			continue
		}
		plans = append(plans, plan{link: l, want: want, made: joint{Link: l.index}})
	}
	return plans, errs
}

func (n *Network) planLink(l link) (joint, error) {
	want := joint{Link: l.index}
	if l.tap {
		return want, n.checkTap()
	}
	want.Made, want.Kind = tapName(l.index), tapKind
	switch n.opts.Model {
	case TCFilter:
		if err := checkRedirect(l); err != nil {
			return joint{}, err
		}
		if n.opts.TxRate != 0 {
			want.Rate = true
			if err := n.ns.checkRoot(l.index); err != nil {
				return joint{}, err
			}
		}
	case Macvtap:
		want.Kind = macvtapKind
		if err := checkMacvtap(l); err != nil {
			return joint{}, err
		}
		if n.opts.RxRate != 0 {
			want.Shaper = shaperName(l.index)
		}
	case None:
		return want, n.ns.checkFree(want.Made)
	}
	if err := n.ns.checkFree(want.Made, want.Shaper); err != nil {
		return joint{}, err
	}
	return n.planRedirect(want)
}

// checkTap refuses rates for a link that is itself a tap: such a link is not
// changed.
func (n *Network) checkTap() error {
	if n.opts.RxRate != 0 || n.opts.TxRate != 0 {
		return fmt.Errorf("limit the rate: a tap that is given to the VM as it is keeps its own qdiscs: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}

// join makes what was planned for a link and gives the VM its NIC.
func (n *Network) join(ctx context.Context, vm Machine, p *plan) (err error) {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	c := &nic{id: n.newID(p.link.index), mtu: p.link.mtu, redirected: p.want.Priority != 0}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.abandon(ctx, vm, c, p))
		}
	}()
	taps, err := n.build(ctx, p)
	defer closeAll(taps) // the VM has duplicates
	if err != nil {
		return err
	}
	vhost := n.vhost(ctx, len(taps))
	defer closeAll(vhost)
	n.ids[c.id] = true // even a failed attempt may keep it
	if err := vm.Attach(ctx, hypervisor.NIC{ID: c.id, MAC: p.link.mac, Taps: taps, Vhost: vhost}); err != nil {
		return err
	}
	if c.path, err = vm.PCIPath(c.id); err != nil {
		return err
	}
	c.made = p.made
	n.nics[p.link.index] = c
	return nil
}

// abandon removes what a failed join may have left: an Attach without an answer may
// have attached the NIC. If that fails, or the caller waits no longer, the next Plug
// tries again.
func (n *Network) abandon(ctx context.Context, vm Machine, c *nic, p *plan) error {
	c.made, c.gone = p.made, true
	if ctx.Err() != nil {
		n.nics[p.link.index] = c
		return n.undo(c)
	}
	ctx, cancel := context.WithTimeout(ctx, abandonTimeout)
	defer cancel()
	if err := n.unplug(ctx, vm, c); err != nil {
		n.nics[p.link.index] = c
		return fmt.Errorf("remove NIC %s: %w", c.id, err)
	}
	return nil
}

// build makes what was planned for a link and returns the queues of its tap,
// even with an error.
func (n *Network) build(ctx context.Context, p *plan) ([]*os.File, error) {
	switch {
	case p.link.tap:
		return n.ns.openTap(p.link.name, n.opts.Queues)
	case p.want.Kind == macvtapKind:
		return n.buildMacvtap(ctx, p)
	default:
		return n.buildTap(ctx, p)
	}
}

// newID returns an ID for a link's NIC. The index alone is not unique: a link
// may leave the namespace and return.
func (n *Network) newID(index int) string {
	id := fmt.Sprintf("net-%d", index)
	for i := 2; n.ids[id]; i++ {
		id = fmt.Sprintf("net-%d-%d", index, i)
	}
	return id
}
