package virtcontainers

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/guestfs/storage"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// openShare starts the pod's shared file system, unless it is to have none.
func (s *Sandbox) openShare(ctx context.Context) error {
	if s.opts.Config.Hypervisor.SharedFS == config.SharedFSNone {
		if binds := s.opts.Config.Runtime.SandboxBindMounts; len(binds) > 0 {
			return fmt.Errorf(`sandbox_bind_mounts has %q, and shared_fs is "none": %w`, binds, errdefs.ErrInvalidArgument)
		}
		return nil
	}
	fs := s.opts.Config.Hypervisor.VirtioFS
	share, err := storage.OpenShare(ctx, storage.ShareOptions{
		ID: s.ID, Scratch: s.platform.StateDir(), Daemon: fs.Server(), Cache: string(fs.Cache), QueueSize: fs.QueueSize,
		ExtraArgs: fs.ExtraArgs, Tag: api.ShareTag,
		LogLine: func(line string) { log.G(ctx).WithField("source", "virtiofsd").Info(line) },
	})
	if err != nil {
		return err
	}
	s.share = share
	if err := share.BindForPod(s.opts.Config.Runtime.SandboxBindMounts); err != nil {
		return errors.Join(fmt.Errorf("sandbox_bind_mounts: %w", err), share.Close(context.WithoutCancel(ctx)))
	}
	if share.PID() == 0 {
		return nil // it is served here
	}
	if err := s.recordProcess(share.PID(), func(r *persist.Record, p persist.Process) { r.FSDaemon = p }); err != nil {
		return errors.Join(share.Explain(err), share.Close(context.WithoutCancel(ctx)))
	}
	return nil
}

func (s *Sandbox) closeShare(ctx context.Context) error {
	if s.share == nil {
		return nil
	}
	return s.share.Close(ctx)
}

func (s *Sandbox) attachShare(ctx context.Context) error {
	if s.share == nil {
		return nil
	}
	return s.share.Attach(ctx, s.vm)
}

// shareDone is closed when the share has ended; without one it never is.
func (s *Sandbox) shareDone() <-chan struct{} {
	if s.share == nil {
		return nil
	}
	return s.share.Done()
}

// shareLost says why the share is served no more: by itself, or with the machine.
func (s *Sandbox) shareLost() error {
	s.awaitDeath()
	if cause := s.died(nil); cause != nil {
		return cause
	}
	return s.share.Err()
}

// unshare takes a container's files out of the share; a sandbox that ended
// has taken the whole share away.
func (s *Sandbox) unshare(id string) error {
	if s.share == nil {
		return nil
	}
	select {
	case <-s.stopped:
		return nil
	default:
		return s.share.RemoveContainer(id)
	}
}
