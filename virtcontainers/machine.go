package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/internal/spans"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/guestfs"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// machine is a virtual machine with what it has on the host: its record, the share
// that it uses, the user as which it runs, the connection to its agent. It knows no
// pod: a template is made of one, a spare is one, and a sandbox has one.
type machine struct {
	blueprint
	// recorder records how long the parts of its start took, and of its containers'.
	recorder *spans.Recorder
	// boot is what its start has done; unwind ends the machine.
	boot boot

	// Set by the boot; not changed afterwards.
	state     *persist.Store
	files     *guestfs.Pod
	jail      *jail // nil for none
	vm        hypervisor.VM
	transport Transport
	client    *guest.Client
	template  ofTemplate
	// mayOrder is set if a template that the machine misses may be ordered.
	mayOrder bool
	// mounted is set once a guest without a pod has mounted the share.
	mounted bool
	// stays is set by stopVM if the machine's process has not ended. Then the undos that
	// follow leave what it uses, and the record, which names that.
	stays bool
}

// newMachine returns a machine that has not started.
func newMachine(b blueprint, recorder *spans.Recorder) machine {
	return machine{blueprint: b, recorder: recorder, boot: boot{failAt: b.platform.Failpoint, recorder: recorder}}
}

func (m *machine) openState(context.Context) error {
	state, err := persist.Create(m.platform.StateDir(), m.platform.Owner, m.id)
	if err != nil {
		return err
	}
	m.state = state
	self, err := persist.Identify(os.Getpid())
	if err == nil {
		err = state.Update(func(r *persist.Record) { r.Shim = self })
	}
	if err != nil {
		return errors.Join(err, state.Remove())
	}
	return nil
}

// closeState removes the record. That of a machine that has not ended stays: with the
// mark, a later start on this host removes what it names (SweepAbandoned).
func (m *machine) closeState(context.Context) error {
	if m.stays {
		return errors.Join(errors.New("its user id, cgroups and record stay"), persist.BeginRemoval(m.platform.StateDir(), m.platform.Owner.Name(m.id)))
	}
	return m.state.Remove()
}

// openSpareFiles opens the files of a machine without a pod.
func (m *machine) openSpareFiles(ctx context.Context) error {
	files, err := guestfs.OpenSpare(ctx, m.fileOptions())
	if err != nil {
		return err
	}
	return m.useFiles(ctx, files)
}

// useFiles makes files the machine's, and records the share's daemon, if it has
// one. On an error they are closed.
func (m *machine) useFiles(ctx context.Context, files *guestfs.Pod) error {
	m.files = files
	if err := m.recordDaemon(); err != nil {
		return errors.Join(files.ExplainDaemon(err), files.Close(context.WithoutCancel(ctx)))
	}
	return nil
}

// recordDaemon records the process that serves the share, if it is another one.
func (m *machine) recordDaemon() error {
	pid := m.files.DaemonPID()
	if pid == 0 {
		return nil
	}
	return m.state.UpdateWith(pid, func(r *persist.Record, p persist.Process) { r.FSDaemon = p })
}

func (m *machine) launchVM(ctx context.Context) error {
	spec := m.loggedSpec(ctx)
	if err := m.start(ctx, spec, m.launch); err != nil {
		return err
	}
	warnOfMonitor(ctx, spec.ExtraMonitor)
	return nil
}

// loggedSpec returns the VM's spec, which has its console logged if the configuration
// says so.
func (m *machine) loggedSpec(ctx context.Context) hypervisor.Spec {
	spec := m.spec(m.jail)
	if m.config.Hypervisor.Debug {
		spec.ConsoleLine = guest.ConsoleLog(ctx)
	}
	return spec
}

// warnOfMonitor logs a warning that there is an extra monitor, and where.
func warnOfMonitor(ctx context.Context, m hypervisor.ExtraMonitor) {
	if m.Path != "" {
		log.G(ctx).WithField("socket", m.Path).Warnf("an extra monitor (%s) commands this sandbox's machine", m.Language)
	}
}

// start starts the VM and records its process.
func (m *machine) start(ctx context.Context, spec hypervisor.Spec, launch func(context.Context, hypervisor.Spec) (hypervisor.VM, error)) error {
	launched := m.recorder.Begin("", qemuSpan)
	vm, err := launch(ctx, spec)
	launched()
	if err != nil {
		return m.size.ExplainLaunch(err)
	}
	if err := m.useVM(vm); err != nil {
		return errors.Join(err, m.stopVM(context.WithoutCancel(ctx)))
	}
	return nil
}

// useVM makes vm the machine's, and records its process.
func (m *machine) useVM(vm hypervisor.VM) error {
	m.vm = vm
	return m.state.UpdateWith(vm.PID(), func(r *persist.Record, p persist.Process) { r.VM = p })
}

var errMachineStays = errors.New("the machine's process has been killed and has not ended")

// stopVM stops the VM. The undos of the boot, which run one after the other, call it
// before those of what the VM uses.
func (m *machine) stopVM(ctx context.Context) error {
	err := m.vm.Stop(ctx)
	if m.stays = !closed(m.vm.Done()); m.stays {
		return errors.Join(errMachineStays, err)
	}
	return err
}

func (m *machine) attachVsock(ctx context.Context) error {
	t, err := m.platform.OpenTransport(ctx)
	if err != nil {
		return err
	}
	if err := t.Attach(ctx, m.vm); err != nil {
		return errors.Join(err, t.Close())
	}
	m.transport = t
	return nil
}

// dialAgent waits for the agent while the VM lives.
func (m *machine) dialAgent(ctx context.Context) error {
	timeout := m.config.Agent.DialTimeout
	if m.template.key != "" {
		timeout = m.bootedTimeout()
	}
	ctx, stop := m.whileAnswering(ctx, timeout)
	defer stop()
	client, err := guest.Connect(ctx, m.transport.Dial)
	if err != nil {
		return m.explain(ctx, err)
	}
	m.client = client
	return nil
}

// pingAgent checks that the agent of a guest that has booted before still answers.
func (m *machine) pingAgent(ctx context.Context) error {
	ctx, stop := m.whileAnswering(ctx, m.bootedTimeout())
	defer stop()
	if err := m.client.Ping(ctx); err != nil {
		return m.explain(ctx, err)
	}
	return nil
}

// whileAnswering is whileAlive for an agent that has a time to answer.
func (m *machine) whileAnswering(ctx context.Context, timeout time.Duration) (_ context.Context, stop func()) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the agent did not answer within %v", timeout))
	ctx, end := m.whileAlive(ctx)
	return ctx, func() { end(); cancel() }
}

// takeOver makes all that another machine has this one's, whose record names it from
// now on; the other's record is removed. After an error endAll must follow too.
func (m *machine) takeOver(other *machine) error {
	m.vm, m.files, m.jail, m.transport, m.client = other.vm, other.files, other.jail, other.transport, other.client
	m.template, m.mounted = ofTemplate{key: other.template.key}, other.mounted
	err := m.useVM(m.vm)
	if err == nil {
		err = m.recordDaemon()
	}
	if err == nil {
		err = other.state.Remove()
	}
	return err
}

// endAll ends what was taken over, each part within its own time, as the steps that
// made them would be undone.
func (m *machine) endAll(ctx context.Context) error {
	var errs []error
	for _, end := range []func(context.Context) error{
		func(context.Context) error { return m.client.Close() },
		m.stopVM,
		func(context.Context) error { return m.transport.Close() },
		m.closeJail,
		m.files.Close,
	} {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		errs = append(errs, end(ctx))
		cancel()
	}
	return errors.Join(errs...)
}
