package virtcontainers

import (
	"context"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guestfs"
	"github.com/katabox/katabox/virtcontainers/persist"
)

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

// podFileOptions describe the pod's files.
func (s *Sandbox) podFileOptions() guestfs.Options {
	opts := s.fileOptions()
	opts.ShmBytes, opts.MemoryBytes = s.opts.ShmBytes, s.sizing.MemoryBytes()
	return opts
}

// openFiles opens the pod's files.
func (s *Sandbox) openFiles(ctx context.Context) error {
	files, err := guestfs.Open(ctx, s.podFileOptions())
	if err != nil {
		return err
	}
	return s.useFiles(ctx, files)
}

// reachAgent waits for the agent, and passes the client to the packages that need it.
func (s *Sandbox) reachAgent(ctx context.Context) error {
	if err := s.dialAgent(ctx); err != nil {
		return err
	}
	s.useAgent()
	return nil
}

func (s *Sandbox) useAgent() {
	s.client.Guard(s.sleeper.enter)
	s.files.Connect(s.client, s.gone)
	s.sizing.Connect(s.client)
	s.network.Connect(s.client, s.gone)
}

// podStorages returns what the guest has to mount for its pod.
func (s *Sandbox) podStorages() []*api.Storage {
	if s.mounted {
		return s.files.Storages()
	}
	return append(s.files.EarlyStorages(), s.files.Storages()...)
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
