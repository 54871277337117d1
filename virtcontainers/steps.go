package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/guestfs"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// StateDir returns the directory of the sandboxes' records.
func (p Platform) StateDir() string {
	if p.states != "" {
		return p.states
	}
	return filepath.Join(p.RunDir, "sandboxes")
}

// PodDir returns the directory of a sandbox's record.
func (p Platform) PodDir(sandboxID string) string {
	return filepath.Join(p.StateDir(), p.Owner.Name(sandboxID))
}

func (s *Sandbox) openState(context.Context) error {
	state, err := persist.Create(s.platform.StateDir(), s.platform.Owner, s.ID)
	if err != nil {
		return err
	}
	s.state = state
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
func (s *Sandbox) closeState(context.Context) error {
	if s.stays {
		return errors.Join(errors.New("its user id, cgroups and record stay"), persist.BeginRemoval(s.platform.StateDir(), s.platform.Owner.Name(s.ID)))
	}
	return s.state.Remove()
}

func (s *Sandbox) openCgroup(ctx context.Context) error {
	return s.sizing.OpenCgroup(ctx, func(dirs []string) error {
		return s.state.Update(func(r *persist.Record) { r.Cgroups = dirs })
	})
}

// closeCgroup removes the pod's cgroups, unless the machine has not ended: it would be
// moved out of its limits.
func (s *Sandbox) closeCgroup(ctx context.Context) error {
	if s.stays {
		s.sizing.LeaveCgroup()
		return nil
	}
	return s.sizing.CloseCgroup(ctx)
}

// fileOptions describe the pod's files.
func (s *Sandbox) fileOptions() guestfs.Options {
	return guestfs.Options{ID: s.ID, Scratch: s.platform.StateDir(), ShmBytes: s.opts.ShmBytes, MemoryBytes: s.sizing.MemoryBytes(), Config: s.opts.Config}
}

// openFiles opens the pod's files.
func (s *Sandbox) openFiles(ctx context.Context) error {
	files, err := guestfs.Open(ctx, s.fileOptions())
	if err != nil {
		return err
	}
	return s.useFiles(ctx, files)
}

// useFiles makes files the sandbox's, and records the share's daemon, if it has
// one. On an error they are closed.
func (s *Sandbox) useFiles(ctx context.Context, files *guestfs.Pod) error {
	s.files = files
	if err := s.recordDaemon(); err != nil {
		return errors.Join(files.ExplainDaemon(err), files.Close(context.WithoutCancel(ctx)))
	}
	return nil
}

// recordDaemon records the process that serves the share, if it is another one.
func (s *Sandbox) recordDaemon() error {
	pid := s.files.DaemonPID()
	if pid == 0 {
		return nil
	}
	return s.state.UpdateWith(pid, func(r *persist.Record, p persist.Process) { r.FSDaemon = p })
}

// podStorages returns what the guest has to mount for its pod.
func (s *Sandbox) podStorages() []*api.Storage {
	if s.spare != nil && s.spare.mounted {
		return s.files.Storages()
	}
	return append(s.files.EarlyStorages(), s.files.Storages()...)
}

func (s *Sandbox) launchVM(ctx context.Context) error {
	spec := s.spec()
	if s.opts.Config.Hypervisor.Debug {
		spec.ConsoleLine = guest.ConsoleLog(ctx)
	}
	if err := s.start(ctx, spec, s.launch); err != nil {
		return err
	}
	warnOfMonitor(ctx, spec.ExtraMonitor)
	return nil
}

// start starts the machine and records its process.
func (s *Sandbox) start(ctx context.Context, spec hypervisor.Spec, launch func(context.Context, hypervisor.Spec) (hypervisor.VM, error)) error {
	launched := s.recorder.Begin("", qemuSpan)
	vm, err := launch(ctx, spec)
	launched()
	if err != nil {
		return s.sizing.ExplainLaunch(err)
	}
	if err := s.useVM(vm); err != nil {
		return errors.Join(err, s.stopVM(context.WithoutCancel(ctx)))
	}
	return nil
}

// useVM makes vm the sandbox's machine, and records its process.
func (s *Sandbox) useVM(vm hypervisor.VM) error {
	s.vm = vm
	return s.state.UpdateWith(vm.PID(), func(r *persist.Record, p persist.Process) { r.VM = p })
}

func (s *Sandbox) attachVsock(ctx context.Context) error {
	t, err := s.platform.OpenTransport(ctx)
	if err != nil {
		return err
	}
	if err := t.Attach(ctx, s.vm); err != nil {
		return errors.Join(err, t.Close())
	}
	s.transport = t
	return nil
}

// dialAgent waits for the agent, and passes the client to the packages that
// need it.
func (s *Sandbox) dialAgent(ctx context.Context) error {
	client, err := s.connectAgent(ctx)
	if err != nil {
		return err
	}
	s.useAgent(client)
	return nil
}

func (s *Sandbox) useAgent(client *guest.Client) {
	client.Guard(s.calls.enter)
	s.client = client
	s.files.Connect(client, s.gone)
	s.sizing.Connect(client)
	s.network.Connect(client, s.gone)
}

// connectAgent waits for the agent while the VM lives.
func (s *Sandbox) connectAgent(ctx context.Context) (*guest.Client, error) {
	timeout := s.opts.Config.Agent.DialTimeout
	if s.template.key != "" {
		timeout = min(timeout, templateDialTimeout)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the agent did not answer within %v", timeout))
	defer cancel()
	ctx, stop := s.whileAlive(ctx)
	defer stop()
	client, err := guest.Connect(ctx, s.transport.Dial)
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	return client, nil
}

func (s *Sandbox) setupGuest(ctx context.Context) error {
	ctx, stop := s.whileAlive(ctx)
	defer stop()
	err := s.client.SetupSandbox(ctx, &api.SetupSandboxRequest{
		SandboxId:     s.ID,
		KernelModules: s.guestModules(),
		GuestHookPath: s.opts.Config.Hypervisor.GuestHookPath,
		Storages:      s.podStorages(),
	})
	if err == nil {
		err = s.network.Tell(ctx)
	}
	if err != nil {
		return s.explain(ctx, err)
	}
	return nil
}
