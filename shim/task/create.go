package task

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	eventtypes "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/shim/events"
	"github.com/katabox/katabox/shim/rpc"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/sizing"
)

// Create makes a container; for the sandbox's own container it boots the sandbox
// first. After an error a shim without a sandbox is abandoned. A Delete of the container
// ends it.
func (s *Service) Create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	ctx, withdraw := context.WithCancelCause(ctx)
	defer withdraw(nil)
	m := s.begin(r.ID, withdraw)
	resp, err := s.create(ctx, r)
	s.end(m, err)
	return resp, asRefusal(err)
}

func (s *Service) create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
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
	// A service container may name its sandbox by a prefix of its id.
	if !strings.HasPrefix(s.opts.ID, place.SandboxID) || place.Kind != bundle.Service && place.SandboxID != s.opts.ID {
		return nil, fmt.Errorf("create container %s: it belongs to sandbox %s, this shim serves %s: %w",
			r.ID, place.SandboxID, s.opts.ID, errdefs.ErrInvalidArgument)
	}
	if err := checkRestorable(r, place); err != nil {
		return nil, err
	}
	if place.Kind == bundle.Service {
		return s.createService(ctx, r, b)
	}
	cfg, err := sandboxConfig(ctx, r.Options, b.Spec.Annotations)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", r.ID, err)
	}
	ctx, cancel := withCreateTimeout(ctx, cfg)
	defer cancel()
	resp, err := s.createFirst(ctx, r, b, cfg)
	return resp, rpc.WithCause(ctx, err)
}

// withCreateTimeout bounds the creation of a container.
func withCreateTimeout(ctx context.Context, cfg *config.Config) (context.Context, context.CancelFunc) {
	return rpc.Within(ctx, "create_container_timeout", cfg.Runtime.CreateContainerTimeout)
}

// place returns a container's place. In a pod of the sandbox API the engine
// determines the pod by calling this shim: an annotation is not needed.
func (s *Service) place(id string, annotations map[string]string) (bundle.Membership, error) {
	place, err := bundle.Place(id, annotations)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.keep && place.Kind == bundle.Single {
		place = bundle.Membership{Kind: bundle.Service, SandboxID: s.opts.ID}
	}
	return place, err
}

// createFirst boots the sandbox, or restores it, and makes its first container. If
// that fails, it stops the sandbox.
func (s *Service) createFirst(ctx context.Context, r *task.CreateTaskRequest, b *bundle.Bundle, cfg *config.Config) (*task.CreateTaskResponse, error) {
	opts, err := s.containerOptions(r, b)
	if err != nil {
		return nil, err
	}
	restore, err := openCheckpoint(ctx, r, cfg, opts)
	if err != nil {
		return nil, err
	}
	defer restore.Close()
	sandbox, err := s.bootFor(ctx, r, b, cfg, restore)
	if err != nil {
		return nil, err
	}
	resp, err := s.createIn(ctx, sandbox, r, opts)
	if err != nil {
		err = errors.Join(err, sandbox.Stop(context.WithoutCancel(ctx)))
		s.mu.Lock()
		s.sandbox = nil
		s.mu.Unlock()
		return nil, err
	}
	return resp, nil
}

// bootFor boots the sandbox that the spec of its first container describes.
func (s *Service) bootFor(ctx context.Context, r *task.CreateTaskRequest, b *bundle.Bundle, cfg *config.Config, restore *virtcontainers.Restoration) (*virtcontainers.Sandbox, error) {
	if err := virtcontainers.CheckSpec(b.Spec, cfg, true); err != nil {
		return nil, fmt.Errorf("create container %s: %w", s.opts.ID, err)
	}
	network, err := s.network(ctx, b, cfg)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", s.opts.ID, err)
	}
	shim, err := shimCgroup(r.Options)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", s.opts.ID, err)
	}
	shm, err := b.ShmBytes(ctx)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", s.opts.ID, err)
	}
	opts := virtcontainers.Options{
		Hostname: hostname(b.Spec), Config: cfg, ShmBytes: shm, ShimCgroup: shim,
		Network: network, Size: sizing.Hints{Annotations: b.Spec.Annotations}, Pod: bundle.PodNameOf(b.Spec.Annotations),
		Restore: restore,
	}
	if b.Spec.Linux != nil {
		opts.CgroupsPath = b.Spec.Linux.CgroupsPath
		opts.Size.Limits = b.Spec.Linux.Resources
	}
	return s.boot(ctx, s.completed(ctx, opts))
}

// hostname returns the pod's name from the spec of its first container. If the
// spec has none, or asks for the host's UTS namespace, it returns the host's
// current name: a new UTS namespace starts as a copy (uts_namespaces(7)).
func hostname(spec *specs.Spec) string {
	if spec.Hostname != "" {
		return spec.Hostname
	}
	name, err := os.Hostname()
	if err != nil {
		return "" // the guest's own name
	}
	return name
}

// boot makes the sandbox, once, and not after Stop.
func (s *Service) boot(ctx context.Context, opts virtcontainers.Options) (*virtcontainers.Sandbox, error) {
	if err := s.beginBoot(); err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", opts.ID, err)
	}
	sandbox, err := virtcontainers.New(ctx, s.opts.Platform, opts)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.booting, s.sandbox = false, sandbox
	close(s.bootDone)
	return sandbox, err
}

func (s *Service) beginBoot() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopping:
		return fmt.Errorf("the shim is ending: %w", errdefs.ErrUnavailable)
	case s.sandbox != nil || s.booting:
		return errdefs.ErrAlreadyExists
	}
	s.booting, s.bootDone = true, make(chan struct{})
	return nil
}

// createService makes a further container of a pod. Its annotations change no
// key: the sandbox exists, with the configuration that it was made with.
func (s *Service) createService(ctx context.Context, r *task.CreateTaskRequest, b *bundle.Bundle) (*task.CreateTaskResponse, error) {
	sandbox, err := s.current()
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", r.ID, err)
	}
	warnings, err := config.CheckContainer(b.Spec.Annotations)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", r.ID, asInvalid(err))
	}
	for _, w := range warnings {
		log.G(ctx).Warn(w)
	}
	if err := keepShimPath(b.Dir, s.opts.ID); err != nil {
		return nil, fmt.Errorf("create container %s: %w", r.ID, err)
	}
	ctx, cancel := withCreateTimeout(ctx, sandbox.Config())
	defer cancel()
	opts, err := s.containerOptions(r, b)
	if err != nil {
		return nil, err
	}
	resp, err := s.createIn(ctx, sandbox, r, opts)
	return resp, rpc.WithCause(ctx, err)
}

// containerOptions describes the container that a request asks for.
func (s *Service) containerOptions(r *task.CreateTaskRequest, b *bundle.Bundle) (virtcontainers.ContainerOptions, error) {
	io, err := s.newIO(r.ID, r)
	if err != nil {
		return virtcontainers.ContainerOptions{}, fmt.Errorf("create container %s: %w", r.ID, err)
	}
	return virtcontainers.ContainerOptions{ID: r.ID, Bundle: b, Rootfs: r.Rootfs, Terminal: r.Terminal, IO: io}, nil
}

func (s *Service) createIn(ctx context.Context, sandbox *virtcontainers.Sandbox, r *task.CreateTaskRequest, opts virtcontainers.ContainerOptions) (*task.CreateTaskResponse, error) {
	if err := bundle.ForgetExit(opts.Bundle.Dir); err != nil {
		return nil, fmt.Errorf("create container %s: %w", r.ID, err)
	}
	if s.policy.OOMFile {
		if err := bundle.ForgetOOM(opts.Bundle.EngineDir()); err != nil {
			log.G(ctx).WithError(err).Warn("the container may be reported as out of memory")
		}
	}
	c, err := sandbox.Create(ctx, opts, func(c *virtcontainers.Container) {
		s.opts.Publisher.Publish(ctx, events.TopicCreate, &eventtypes.TaskCreate{
			ContainerID: r.ID, Bundle: r.Bundle, Rootfs: r.Rootfs, Checkpoint: r.Checkpoint, Pid: uint32(c.PID()),
			IO: &eventtypes.TaskIO{Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Terminal: r.Terminal},
		})
	})
	if err != nil {
		return nil, err
	}
	return &task.CreateTaskResponse{Pid: uint32(c.PID())}, nil
}
