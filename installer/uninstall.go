package installer

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// Uninstall undoes Install: it removes the label, so that no further pods are
// scheduled, then the handler, templates and spares, and the files. It refuses while
// pods run, unless forced: before the first change to the node, and again when no more
// can start.
func Uninstall(ctx context.Context, o Options) (*Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	n := o.node()
	unlock, err := n.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := n.refuseOthers(); err != nil {
		return nil, err
	}
	if _, _, err := o.unplans(); err != nil { // before the first change
		return nil, err
	}
	r := &Result{Engines: []string{}, Restarted: []string{}}
	if o.cluster != nil {
		if err := o.cluster.label(ctx, o.NodeName, false); err != nil {
			return nil, err
		}
		r.Labelled = true
		o.say("removed the label %s from the node %s", NodeLabel, o.NodeName)
	}
	spares, err := o.spares()
	if err != nil {
		return nil, err
	}
	if err := o.refuseUsed(spares); err != nil {
		return nil, err
	}
	if err := o.untell(r); err != nil {
		return nil, err
	}
	if r.Restarted, err = o.restart(ctx); err != nil {
		return nil, err
	}
	if err := o.destroyFactory(); err != nil {
		return nil, err
	}
	if err := o.refuseUsed(nil); err != nil { // until the restart pods could start
		return nil, err
	}
	if err := n.leave(); err != nil {
		return nil, err
	}
	o.say("removed Katabox from the node")
	return r, nil
}

// refuseUsed returns an error if pods run, unless that is forced.
func (o *Options) refuseUsed(spares []int) error {
	if n := o.node(); !o.Force && n.exists(Home) {
		return n.refuseUsed(spares)
	}
	return nil
}

// unplans returns the plans that remove the handler from the files of all engines,
// even of an engine that the node no longer has.
func (o *Options) unplans() (engines []engine, plans []plan, err error) {
	n := o.node()
	engines = []engine{containerd{n, o.Handler, o.run}, crio{n, o.Handler}}
	for _, e := range engines {
		p, err := e.unplan()
		if err != nil {
			return nil, nil, err
		}
		plans = append(plans, p)
	}
	return engines, plans, nil
}

// untell carries out the plans of unplans, of the files as they are now: to remove the label
// may have taken long.
func (o *Options) untell(r *Result) error {
	n := o.node()
	engines, plans, err := o.unplans()
	if err != nil {
		return err
	}
	for i, e := range engines {
		if c, ok := e.(containerd); ok {
			if err := c.removeTrial(); err != nil {
				return err
			}
		}
		changed, err := n.apply(e, plans[i])
		if err != nil {
			return fmt.Errorf("take the handler from %s: %w", e.name(), err)
		}
		if changed {
			r.Engines = append(r.Engines, e.name())
			o.say("took the handler from %s", e.name())
		}
	}
	return nil
}

// leave removes the files and the directories that the installer made.
func (n node) leave() error {
	if !n.exists(Home) {
		return nil
	}
	if err := n.removeHome(); err != nil {
		return err
	}
	if err := n.forgetDirs(); err != nil {
		return err
	}
	if _, err := n.remove(Home); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
		return err
	}
	return nil
}
