package installer

import (
	"context"
	"fmt"
)

// kvm is the device without which a pod takes more time and memory.
const kvm = "/dev/kvm"

// Install copies the build to the node, registers the handler with its engines,
// restarts those whose files changed, and labels the node. It does not repeat
// what was done before. It blocks until services have restarted.
//
// After an error before the first change nothing has changed; after a later one
// the node is in a state from which Install and Uninstall both complete.
func Install(ctx context.Context, o Options) (*Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	n := o.node()
	unlock, err := n.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	list, err := files(o.From)
	if err != nil {
		return nil, err
	}
	engines, err := o.requirements(ctx, list)
	if err != nil {
		return nil, err
	}
	r := &Result{Engines: []string{}, Restarted: []string{}}
	if r.Version, err = versionName(o.Version, list); err != nil {
		return nil, err
	}
	plans, err := o.plans(ctx, engines)
	if err != nil {
		return nil, err
	}
	if err := o.place(r.Version, list); err != nil {
		return nil, err
	}
	if err := o.tell(engines, plans); err != nil {
		return nil, err
	}
	for _, e := range engines {
		r.Engines = append(r.Engines, e.name())
	}
	return r, o.finish(ctx, r)
}

// requirements checks what the node must have.
func (o *Options) requirements(ctx context.Context, list []file) ([]engine, error) {
	n := o.node()
	if err := n.refuseOthers(); err != nil {
		return nil, err
	}
	if err := o.checkMachine(ctx, list); err != nil {
		return nil, err
	}
	if !n.exists(kvm) {
		o.say("the node has no %s: pods run under QEMU's translator, several times slower, and need a RuntimeClass whose overhead.podFixed "+
			"has 1664Mi of memory (docs/kubernetes.md)", kvm)
	}
	return o.engines()
}

// plans makes each engine's plan and has the engine validate it.
func (o *Options) plans(ctx context.Context, engines []engine) ([]plan, error) {
	var plans []plan
	for _, e := range engines {
		p, err := e.plan(ctx)
		if err != nil {
			return nil, err
		}
		plans = append(plans, p)
		if changes, err := o.node().differs(p); err != nil || !changes {
			if err != nil {
				return nil, err
			}
			continue
		}
		notice, err := e.validate(ctx, p)
		if err != nil {
			return nil, err
		}
		if notice != "" {
			o.say("%s", notice)
		}
	}
	return plans, nil
}

// place copies the files to the node and makes the version current.
func (o *Options) place(name string, list []file) error {
	n := o.node()
	if err := n.makeHome(); err != nil {
		return err
	}
	if err := n.addVersion(name, list); err != nil {
		return err
	}
	if err := n.switchTo(name); err != nil {
		return fmt.Errorf("switch to version %s: %w", name, err)
	}
	o.say("%s/%s is current", versionsDir, name)
	keep, err := n.inUse()
	if err != nil {
		return err
	}
	keep[name] = true
	return n.removeVersions(keep)
}

// tell carries out the engines' plans.
func (o *Options) tell(engines []engine, plans []plan) error {
	n := o.node()
	for i, e := range engines {
		changed, err := n.apply(e, plans[i])
		if err != nil {
			return fmt.Errorf("configure %s: %w", e.name(), err)
		}
		if changed {
			o.say("told %s of the handler %s", e.name(), o.Handler)
		} else {
			o.say("%s knows the handler %s", e.name(), o.Handler)
		}
	}
	return nil
}

// finish restarts the engines so that they read their files, and then labels the
// node.
func (o *Options) finish(ctx context.Context, r *Result) (err error) {
	if r.Restarted, err = o.restart(ctx); err != nil {
		return err
	}
	if o.cluster == nil {
		return nil
	}
	if err := o.cluster.label(ctx, o.NodeName, true); err != nil {
		return err
	}
	r.Labelled = true
	o.say("labelled the node %s with %s", o.NodeName, NodeLabel)
	return nil
}
