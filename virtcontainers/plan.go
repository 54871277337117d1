package virtcontainers

import "context"

// machinePlan has the steps of a machine's start, each with its undo. A machine without
// a pod starts by some of them.
type machinePlan struct {
	state, share, user, vm, vsock, storage, hardware, resume, agent step
}

func (m *machine) plan() machinePlan {
	return machinePlan{
		state:    step{"state", m.openState, m.closeState},
		share:    step{"share", m.openSpareFiles, func(ctx context.Context) error { return m.files.Close(ctx) }},
		user:     step{"user", m.openJail, m.closeJail},
		vm:       step{"vm", m.launchVM, m.stopVM},
		vsock:    step{"vsock", m.attachVsock, func(context.Context) error { return m.transport.Close() }},
		storage:  step{"storage", func(ctx context.Context) error { return m.files.Attach(ctx, m.vm) }, nil},
		hardware: step{"hardware", m.attachDevices, nil},
		// The machine stops before what it uses goes away.
		resume: step{"resume", func(ctx context.Context) error { return m.vm.Resume(ctx) }, m.stopVM},
		agent:  step{"agent", m.dialAgent, func(context.Context) error { return m.client.Close() }},
	}
}

// plan has the steps of a sandbox's start: its machine's, and the pod's. Every way to
// start changes some, and puts them in order.
type plan struct {
	machinePlan
	netns, cgroup, standIns, network, podStandIn, account, charge, forward, guest, management step
}

func (s *Sandbox) plan() plan {
	p := plan{
		machinePlan: s.machine.plan(),
		netns:       step{"netns", func(ctx context.Context) error { return s.network.Open(ctx) }, func(ctx context.Context) error { return s.network.Close(ctx) }},
		cgroup:      step{"cgroup", s.openCgroup, s.closeCgroup},
		standIns:    step{"standins", s.openStandIns, func(ctx context.Context) error { return s.standIns.close(ctx, s.Containers()) }},
		network:     step{"network", func(ctx context.Context) error { return s.network.Plug(ctx, s.vm) }, nil},
		podStandIn: step{"pod-standin", func(context.Context) error {
			if !s.opts.StandIn {
				return nil
			}
			return s.standIns.addOwn()
		}, nil},
		account: step{"account", func(ctx context.Context) error { return s.sizing.Account(ctx, s.vm, s.files.DaemonPID()) }, nil},
		charge:  step{"charge", func(ctx context.Context) error { return s.sizing.ChargeCPUs(ctx) }, nil},
		forward: step{
			"forward", func(ctx context.Context) error { return s.network.Forward(ctx) },
			func(ctx context.Context) error { return s.network.StopForward(ctx) },
		},
		guest:      step{"guest", s.setupGuest, nil},
		management: step{"management", s.openManagement, s.closeManagement},
	}
	p.share.do, p.agent.do = s.openFiles, s.reachAgent
	return p
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
