package task

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	eventtypes "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/shim/events"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/config"
)

// Create makes a container; for the sandbox's own, the sandbox first.
func (s *Service) Create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	s.usedOnce.Do(func() { close(s.used) })
	if r.Checkpoint != "" {
		return nil, fmt.Errorf("create container %s from a checkpoint: %w", r.ID, errdefs.ErrNotImplemented)
	}
	if err := bundle.CheckID(r.ID); err != nil {
		return nil, fmt.Errorf("create container: %w", err)
	}
	b, err := bundle.Load(r.Bundle)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", r.ID, err)
	}
	place, err := s.place(r.ID, b.Spec.Annotations)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", r.ID, err)
	}
	// A service container may name its sandbox by the beginning of its id.
	if !strings.HasPrefix(s.opts.ID, place.SandboxID) || place.Kind != bundle.Service && place.SandboxID != s.opts.ID {
		return nil, fmt.Errorf("create container %s: it belongs to sandbox %s, this shim serves %s: %w",
			r.ID, place.SandboxID, s.opts.ID, errdefs.ErrInvalidArgument)
	}
	cfg, err := containerConfig(ctx, r.Options, place.Kind, b.Spec.Annotations)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", r.ID, err)
	}
	timeout := cfg.Runtime.CreateContainerTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("create_container_timeout of %v is over", timeout))
	defer cancel()
	if place.Kind == bundle.Service {
		return s.createService(ctx, r, b)
	}
	return s.createFirst(ctx, r, b, cfg)
}

// place finds a container's place. In a pod of the sandbox API the engine has
// said whose it is by asking this shim: no annotation needs to.
func (s *Service) place(id string, annotations map[string]string) (bundle.Membership, error) {
	place, err := bundle.Place(id, annotations)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.keep && place.Kind == bundle.Single {
		place = bundle.Membership{Kind: bundle.Service, SandboxID: s.opts.ID}
	}
	return place, err
}

// createFirst boots the sandbox and makes its first container. When that
// fails the sandbox goes too.
func (s *Service) createFirst(ctx context.Context, r *task.CreateTaskRequest, b *bundle.Bundle, cfg *config.Config) (*task.CreateTaskResponse, error) {
	sandbox, err := s.bootFor(ctx, b, cfg)
	if err != nil {
		s.abandon()
		return nil, err
	}
	resp, err := s.createIn(ctx, sandbox, r, b)
	if err != nil {
		err = errors.Join(err, sandbox.Stop(context.WithoutCancel(ctx)))
		s.mu.Lock()
		s.sandbox = nil
		s.mu.Unlock()
		s.abandon()
		return nil, err
	}
	return resp, nil
}

// bootFor boots the sandbox that the spec of its first container describes.
func (s *Service) bootFor(ctx context.Context, b *bundle.Bundle, cfg *config.Config) (*virtcontainers.Sandbox, error) {
	netns, err := b.NetNS()
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", s.opts.ID, err)
	}
	network := virtcontainers.NetworkSpec{Namespace: netns, ResolvConf: b.ResolvConf()}
	opts := s.sandboxOptions(ctx, b.Spec.Hostname, network, cfg)
	opts.ShmBytes = b.ShmBytes()
	opts.Size.Annotations = b.Spec.Annotations
	if b.Spec.Linux != nil {
		opts.CgroupsPath = b.Spec.Linux.CgroupsPath
		opts.Size.Limits = b.Spec.Linux.Resources
	}
	return s.boot(ctx, opts)
}

// abandonAfter is the default of Options.AbandonAfter.
const abandonAfter = 5 * time.Second

// abandon ends a shim whose first Create failed, unless its engine does or
// tries again: one that died meanwhile may not know of the shim any more, or
// (containerd 1.6) keep it for ever.
func (s *Service) abandon() {
	after := s.opts.AbandonAfter
	if after == 0 {
		after = abandonAfter
	}
	time.AfterFunc(after, func() {
		if s.empty() {
			s.opts.Exit()
		}
	})
}

// boot makes the sandbox, once.
func (s *Service) boot(ctx context.Context, opts virtcontainers.Options) (*virtcontainers.Sandbox, error) {
	s.mu.Lock()
	if s.sandbox != nil || s.booting {
		s.mu.Unlock()
		return nil, fmt.Errorf("sandbox %s: %w", opts.ID, errdefs.ErrAlreadyExists)
	}
	s.booting, s.bootDone = true, make(chan struct{})
	s.mu.Unlock()
	sandbox, err := virtcontainers.New(ctx, s.opts.Platform, opts)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.booting, s.sandbox = false, sandbox
	close(s.bootDone)
	return sandbox, err
}

func (s *Service) createService(ctx context.Context, r *task.CreateTaskRequest, b *bundle.Bundle) (*task.CreateTaskResponse, error) {
	sandbox, err := s.current()
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", r.ID, err)
	}
	return s.createIn(ctx, sandbox, r, b)
}

func (s *Service) createIn(ctx context.Context, sandbox *virtcontainers.Sandbox, r *task.CreateTaskRequest, b *bundle.Bundle) (*task.CreateTaskResponse, error) {
	if err := bundle.ForgetExit(b.Dir); err != nil {
		return nil, fmt.Errorf("create container %s: %w", r.ID, err)
	}
	io, err := s.newIO(r)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", r.ID, err)
	}
	pid := uint32(sandbox.PID())
	_, err = sandbox.Create(ctx, virtcontainers.ContainerOptions{
		ID: r.ID, Bundle: b, Rootfs: r.Rootfs, Terminal: r.Terminal, IO: io,
	}, func(*virtcontainers.Container) {
		s.opts.Publisher.Publish(ctx, events.TopicCreate, &eventtypes.TaskCreate{
			ContainerID: r.ID, Bundle: r.Bundle, Rootfs: r.Rootfs, Checkpoint: r.Checkpoint, Pid: pid,
			IO: &eventtypes.TaskIO{Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Terminal: r.Terminal},
		})
	})
	if err != nil {
		return nil, err
	}
	return &task.CreateTaskResponse{Pid: pid}, nil
}

// containerConfig reads the configuration as a container's annotations have it.
// Of a service container they change nothing: its sandbox is there.
func containerConfig(ctx context.Context, options *anypb.Any, kind bundle.Kind, annotations map[string]string) (*config.Config, error) {
	cfg, err := loadConfig(ctx, options)
	if err != nil {
		return nil, err
	}
	if kind == bundle.Service {
		warnings, err := config.CheckContainer(annotations)
		for _, w := range warnings {
			log.G(ctx).Warn(w)
		}
		return cfg, asInvalid(err)
	}
	cfg, err = cfg.Annotate(annotations)
	return cfg, asInvalid(err)
}

func asInvalid(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
}

// loadConfig reads the configuration; the engine may name its file in the
// runtime's options. Options of another runtime (runc's) are ignored.
func loadConfig(ctx context.Context, options *anypb.Any) (*config.Config, error) {
	path := ""
	if options != nil && options.MessageIs((*runtimeoptions.Options)(nil)) {
		var opts runtimeoptions.Options
		if err := options.UnmarshalTo(&opts); err != nil {
			return nil, fmt.Errorf("decode runtime options: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		path = opts.ConfigPath
	} else if options != nil && options.TypeUrl != "" {
		log.G(ctx).WithField("type", options.TypeUrl).Debug("runtime options ignored")
	}
	cfg, err := config.Load(path)
	return cfg, asInvalid(err)
}
