package virtcontainers

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
	"github.com/katabox/katabox/virtcontainers/standin"
)

// standIns are the processes that stand for the pod's containers on the host.
type standIns struct {
	host *standin.Host
	// own is the sandbox's; nil where a container has the sandbox's id.
	own *standin.Process
}

// openStandIns makes the place from which stand-ins are started.
func (s *Sandbox) openStandIns(context.Context) error {
	host, err := standin.NewHost(s.platform.StateDir())
	if err != nil {
		return err
	}
	s.standIns = &standIns{host: host}
	return nil
}

// closeStandIns ends those that are left. The machine has ended.
func (s *Sandbox) closeStandIns(ctx context.Context) error {
	var errs []error
	if s.standIns.own != nil {
		errs = append(errs, s.standIns.own.End(ctx))
	}
	for _, c := range s.Containers() {
		errs = append(errs, c.endStandIn(ctx))
	}
	s.standIns.host.Close()
	return errors.Join(errs...)
}

// addOwnStandIn starts the sandbox's own, where it is to have one.
func (s *Sandbox) addOwnStandIn(context.Context) error {
	if !s.opts.StandIn {
		return nil
	}
	p, err := s.startStandIn(standin.Options{
		Args: []string{"sandbox", s.ID}, Hostname: cmp.Or(s.opts.Hostname, s.ID),
	}, s.ID)
	s.standIns.own = p
	return err
}

// addStandIn starts a container's. Where its files cannot be shown, it has an
// empty root.
func (s *Sandbox) addStandIn(ctx context.Context, c *Container, opts ContainerOptions) error {
	spec := opts.Bundle.Spec
	in := standin.Options{Hostname: cmp.Or(spec.Hostname, s.opts.Hostname, c.ID)}
	if spec.Process != nil {
		in.Args = spec.Process.Args
	}
	view, closeView := c.files.View(ctx)
	defer closeView()
	in.View = view
	p, err := s.startStandIn(in, c.ID)
	if err != nil && view.Root != nil {
		log.G(ctx).WithField("container", c.ID).WithError(err).Warn("the container's files cannot be seen through its process on the host")
		in.View = standin.View{}
		p, err = s.startStandIn(in, c.ID)
	}
	if err != nil {
		return err
	}
	c.standIn.Store(p)
	if err := s.placeStandIn(c, p); err != nil {
		log.G(ctx).WithField("container", c.ID).WithError(err).Warn("the container's process on the host is not in the container's cgroup")
	}
	return nil
}

// placeStandIn moves a container's stand-in into the cgroup that the engine has
// named for the container, if it has. The record has the cgroup before it is
// made.
func (s *Sandbox) placeStandIn(c *Container, p *standin.Process) error {
	linux := c.Bundle.Spec.Linux
	if linux == nil || linux.CgroupsPath == "" {
		return nil
	}
	cgroup, err := hostcgroup.NewContainer(s.platform.CgroupRoot, linux.CgroupsPath)
	if err != nil {
		return err
	}
	err = s.state.Update(func(r *persist.Record) {
		r.StandInCgroups = withEntry(s, r.StandInCgroups, c.ID, cgroup.Dir())
	})
	if err != nil {
		return err
	}
	return p.Join(cgroup, linux.Resources)
}

// startStandIn starts one in the pod's network namespace and notes it in the
// record, under a container's id.
func (s *Sandbox) startStandIn(opts standin.Options, id string) (*standin.Process, error) {
	network, err := s.network.OpenNamespace()
	if err != nil {
		return nil, err
	}
	if network != nil {
		defer network.Close()
	}
	opts.Network, opts.Env = network, []string{"KATABOX_SANDBOX=" + s.ID, "KATABOX_CONTAINER=" + id}
	p, err := s.standIns.host.Start(opts)
	if err != nil {
		return nil, err
	}
	err = s.recordProcess(p.PID(), func(r *persist.Record, process persist.Process) {
		r.StandIns = withEntry(s, r.StandIns, id, process)
	})
	if err != nil {
		return nil, errors.Join(err, p.End(context.Background()))
	}
	return p, nil
}

// withEntry is what is noted of the containers that there are, with what is
// new of one.
func withEntry[T any](s *Sandbox, noted map[string]T, id string, entry T) map[string]T {
	kept := map[string]T{id: entry}
	for other, e := range noted {
		if other != id && s.find(other) != nil {
			kept[other] = e
		}
	}
	return kept
}

// endStandIn ends the container's, if it has one.
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
		log.G(ctx).WithField("container", c.ID).WithError(err).Warn("the cgroup of the container's process on the host has not the new limit")
	}
}

// watchStandIn does to the container what is done to its process on the host:
// signals are passed on, and when that is killed, so is the container.
func (s *Sandbox) watchStandIn(c *Container) {
	p := c.standIn.Load()
	for {
		select {
		case signal := <-p.Signals():
			s.passSignal(c, uint32(signal), false)
		case <-p.Done():
			if !c.init.ending() && !s.isStopping() {
				log.G(s.lifeCtx).WithField("container", c.ID).Warn("the container's process on the host was killed: the container is killed")
				s.passSignal(c, sigkill, true)
			}
			return
		case <-c.init.reported:
			return
		case <-s.lifeCtx.Done():
			return
		}
	}
}

const sigkill = 9

// passSignalWait bounds how long the guest may take to pass a signal on.
const passSignalWait = 10 * time.Second

func (s *Sandbox) passSignal(c *Container, signal uint32, all bool) {
	ctx, cancel := context.WithTimeout(s.lifeCtx, passSignalWait)
	defer cancel()
	if err := c.init.Kill(ctx, signal, all); err != nil {
		log.G(ctx).WithField("container", c.ID).WithError(err).Warn("a signal to the container's process on the host could not be passed on")
	}
}
