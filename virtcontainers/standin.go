package virtcontainers

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
	"github.com/katabox/katabox/virtcontainers/standin"
)

// standIns starts the stand-ins of the pod's containers on the host.
type standIns struct {
	host *standin.Host
	// sandboxID and hostname are the sandbox's.
	sandboxID, hostname string
	cgroupRoot          string
	state               *persist.Store
	// network opens the pod's network namespace; its file is nil for the host's.
	network func() (*os.File, error)
	// isThere reports whether the sandbox has a container of that id.
	isThere func(id string) bool
	// own is the sandbox's; nil if a container has the sandbox's id.
	own *standin.Process
}

// openStandIns makes the Host from which stand-ins are started.
func (s *Sandbox) openStandIns(context.Context) error {
	host, err := standin.NewHost(s.platform.StateDir())
	if err != nil {
		return err
	}
	s.standIns = &standIns{
		host: host, sandboxID: s.ID, hostname: s.opts.Hostname, cgroupRoot: s.platform.CgroupRoot,
		state: s.state, network: s.network.OpenNamespace,
		isThere: func(id string) bool { return s.find(id) != nil },
	}
	return nil
}

// close ends the remaining stand-ins: the sandbox's and these containers'. The
// machine has ended.
func (i *standIns) close(ctx context.Context, containers []*Container) error {
	var errs []error
	if i.own != nil {
		errs = append(errs, i.own.End(ctx))
	}
	for _, c := range containers {
		errs = append(errs, c.endStandIn(ctx))
	}
	return errors.Join(append(errs, i.host.Close(ctx))...)
}

// addOwn starts the sandbox's own stand-in.
func (i *standIns) addOwn() (err error) {
	i.own, err = i.start(standin.Options{
		Args: []string{"sandbox", i.sandboxID}, Hostname: cmp.Or(i.hostname, i.sandboxID),
	}, i.sandboxID)
	return err
}

// ownPID returns the process id of the sandbox's own stand-in, or 0.
func (i *standIns) ownPID() int {
	if i.own == nil {
		return 0
	}
	return i.own.PID()
}

// add starts a container's stand-in. If the container's files cannot be shown,
// its root is empty.
func (i *standIns) add(ctx context.Context, c *Container) error {
	spec := c.Bundle.Spec
	in := standin.Options{Hostname: cmp.Or(spec.Hostname, i.hostname, c.ID)}
	if spec.Process != nil {
		in.Args = spec.Process.Args
	}
	view, closeView := c.files.View(ctx)
	defer closeView()
	in.View = view
	p, err := i.start(in, c.ID)
	if err != nil && view.Root != nil {
		log.G(ctx).WithField("container", c.ID).WithError(err).Warn("the container's files cannot be seen through its process on the host")
		in.View = standin.View{}
		p, err = i.start(in, c.ID)
	}
	if err != nil {
		return err
	}
	c.standIn.Store(p)
	if err := i.place(c, p); err != nil {
		log.G(ctx).WithField("container", c.ID).WithError(err).Warn("the container's process on the host is not in the container's cgroup")
	}
	return nil
}

// place moves a container's stand-in into the cgroup that the engine named for
// the container, if any. The cgroup is recorded before it is made.
func (i *standIns) place(c *Container, p *standin.Process) error {
	linux := c.Bundle.Spec.Linux
	if linux == nil || linux.CgroupsPath == "" {
		return nil
	}
	cgroup, err := hostcgroup.NewContainer(i.cgroupRoot, linux.CgroupsPath)
	if err != nil {
		return err
	}
	err = i.state.Update(func(r *persist.Record) {
		r.StandInCgroups = withEntry(i, r.StandInCgroups, c.ID, cgroup.Dir())
	})
	if err != nil {
		return err
	}
	return p.Join(cgroup, linux.Resources)
}

// start starts a stand-in in the pod's network namespace and records it under a
// container's id.
func (i *standIns) start(opts standin.Options, id string) (*standin.Process, error) {
	network, err := i.network()
	if err != nil {
		return nil, err
	}
	if network != nil {
		defer network.Close()
	}
	opts.Network, opts.Env = network, []string{"KATABOX_SANDBOX=" + i.sandboxID, "KATABOX_CONTAINER=" + id}
	p, err := i.host.Start(opts)
	if err != nil {
		return nil, err
	}
	err = i.state.UpdateWith(p.PID(), func(r *persist.Record, process persist.Process) {
		r.StandIns = withEntry(i, r.StandIns, id, process)
	})
	if err != nil {
		return nil, errors.Join(err, p.End(context.Background()))
	}
	return p, nil
}

// withEntry returns the recorded entries of existing containers, with a new one
// added.
func withEntry[T any](i *standIns, noted map[string]T, id string, entry T) map[string]T {
	kept := map[string]T{id: entry}
	for other, e := range noted {
		if other != id && i.isThere(other) {
			kept[other] = e
		}
	}
	return kept
}

// endStandIn ends the container's stand-in, if it has one.
func (c *Container) endStandIn(ctx context.Context) error {
	if p := c.standIn.Load(); p != nil {
		return p.End(ctx)
	}
	return nil
}

// showLimits has the stand-in's cgroup follow an update.
func (c *Container) showLimits(ctx context.Context, limits *specs.LinuxResources) {
	p := c.standIn.Load()
	if p == nil {
		return
	}
	if err := p.Limit(limits); err != nil {
		log.G(ctx).WithField("container", c.ID).WithError(err).Warn("the cgroup of the container's process on the host does not have the new limit")
	}
}

// watchStandIn applies to the container what happens to its stand-in: signals
// are passed on, and when the stand-in is killed, so is the container.
func (c *Container) watchStandIn() {
	s, p := c.sandbox, c.standIn.Load()
	for {
		select {
		case signal := <-p.Signals():
			c.passSignal(s.lifeCtx, uint32(signal), false)
		case <-p.Done():
			if !c.init.ending() && !s.isStopping() {
				log.G(s.lifeCtx).WithField("container", c.ID).Warn("the container's process on the host was killed: the container is killed")
				c.passSignal(s.lifeCtx, sigkill, true)
			}
			return
		case <-c.init.reported:
			return
		case <-s.lifeCtx.Done():
			return
		}
	}
}

// passSignalWait bounds how long the guest may take to pass a signal on.
const passSignalWait = 10 * time.Second

func (c *Container) passSignal(ctx context.Context, signal uint32, all bool) {
	ctx, cancel := context.WithTimeout(ctx, passSignalWait)
	defer cancel()
	if err := c.init.Kill(ctx, signal, all); err != nil {
		log.G(ctx).WithField("container", c.ID).WithError(err).Warn("a signal to the container's process on the host could not be passed on")
	}
}
