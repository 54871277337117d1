package virtcontainers

import "context"

// plan has the steps of a sandbox's start, each with its undo. Every way to start
// changes some, and puts them in order.
type plan struct {
	state, netns, cgroup, standIns, share, user, vm, vsock, network, podStandIn, storage,
	hardware, account, resume, agent, charge, forward, guest, management step
}

func (s *Sandbox) plan() plan {
	return plan{
		state:    step{"state", s.openState, s.closeState},
		netns:    step{"netns", func(ctx context.Context) error { return s.network.Open(ctx) }, func(ctx context.Context) error { return s.network.Close(ctx) }},
		cgroup:   step{"cgroup", s.openCgroup, s.closeCgroup},
		standIns: step{"standins", s.openStandIns, func(ctx context.Context) error { return s.standIns.close(ctx, s.Containers()) }},
		share:    step{"share", s.openFiles, func(ctx context.Context) error { return s.files.Close(ctx) }},
		user:     step{"user", s.openJail, s.closeJail},
		vm:       step{"vm", s.launchVM, s.stopVM},
		vsock:    step{"vsock", s.attachVsock, func(context.Context) error { return s.transport.Close() }},
		network:  step{"network", func(ctx context.Context) error { return s.network.Plug(ctx, s.vm) }, nil},
		podStandIn: step{"pod-standin", func(context.Context) error {
			if !s.opts.StandIn {
				return nil
			}
			return s.standIns.addOwn()
		}, nil},
		storage:  step{"storage", func(ctx context.Context) error { return s.files.Attach(ctx, s.vm) }, nil},
		hardware: step{"hardware", s.attachDevices, nil},
		account:  step{"account", func(ctx context.Context) error { return s.sizing.Account(ctx, s.vm, s.files.DaemonPID()) }, nil},
		// The machine stops before what it uses goes away.
		resume: step{"resume", func(ctx context.Context) error { return s.vm.Resume(ctx) }, s.stopVM},
		agent:  step{"agent", s.dialAgent, func(context.Context) error { return s.client.Close() }},
		charge: step{"charge", func(ctx context.Context) error { return s.sizing.ChargeCPUs(ctx) }, nil},
		forward: step{
			"forward", func(ctx context.Context) error { return s.network.Forward(ctx) },
			func(ctx context.Context) error { return s.network.StopForward(ctx) },
		},
		guest:      step{"guest", s.setupGuest, nil},
		management: step{"management", s.openManagement, s.closeManagement},
	}
}

// boots is the order of a boot.
func (p *plan) boots() []step {
	return []step{
		p.state, p.netns, p.cgroup, p.standIns, p.share, p.user, p.vm, p.vsock, p.network, p.podStandIn, p.storage,
		p.hardware, p.account, p.resume, p.agent, p.charge, p.forward, p.guest, p.management,
	}
}

// BootSteps names the steps of a boot, in order.
func BootSteps() []string {
	p := new(Sandbox).plan()
	var names []string
	for _, s := range p.boots() {
		names = append(names, s.name)
	}
	return names
}

// startSteps returns the steps of the sandbox's start, in order.
func (s *Sandbox) startSteps() []step {
	p := s.plan()
	switch {
	case s.opts.Restore != nil:
		return s.restoring(&p)
	case s.spare != nil:
		return s.adopting(&p)
	}
	return p.boots()
}
