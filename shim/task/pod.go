package task

import (
	"context"
	"fmt"

	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/metrics"
	"github.com/katabox/katabox/virtcontainers/timeline"
)

// Boot makes a sandbox without a container of the same id, for the sandbox API.
// The shim then ends with the sandbox, and not with its last container. Boot sets
// the options that belong to the shim (ID, Observer). After an error a shim without a
// sandbox is abandoned.
func (s *Service) Boot(ctx context.Context, opts virtcontainers.Options) (_ *virtcontainers.Sandbox, err error) {
	m := s.begin("", nil)
	defer func() { s.end(m, err) }()
	sandbox, err := s.boot(ctx, s.completed(ctx, opts))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.keep = true
	s.mu.Unlock()
	return sandbox, nil
}

// completed adds the shim's part to a sandbox's options, and applies the part of
// the configuration that concerns the shim.
func (s *Service) completed(ctx context.Context, opts virtcontainers.Options) virtcontainers.Options {
	if opts.Config.Runtime.Debug {
		_ = log.SetLevel("debug")
	}
	for _, w := range opts.Config.Warnings {
		log.G(ctx).Warn(w)
	}
	opts.ID = s.opts.ID
	opts.Arrival, opts.Manage = s.opts.Arrival, s.opts.Manage
	s.mu.Lock()
	opts.Arrival.Called = s.called
	s.mu.Unlock()
	o := &observer{ctx: context.WithoutCancel(ctx), publisher: s.opts.Publisher, exits: s.exits,
		execEnded: s.execEnded, saveExit: s.saveExit}
	if s.policy.OOMFile {
		o.saveOOM = s.saveOOM
	}
	opts.Observer = o
	if s.opts.Configured != nil {
		s.opts.Configured(opts)
	}
	return opts
}

// Current returns the sandbox that was booted, or an errdefs.ErrNotFound.
func (s *Service) Current() (*virtcontainers.Sandbox, error) { return s.current() }

// ContainerIDs returns the ids of the containers that have not been deleted, and that an
// engine may still delete.
func (s *Service) ContainerIDs() []string {
	sandbox, err := s.current()
	if err != nil {
		return nil
	}
	var ids []string
	for _, c := range known(sandbox) {
		ids = append(ids, c.ID)
	}
	return ids
}

// Timeline returns how the sandbox and its containers started.
func (s *Service) Timeline(ctx context.Context) (*timeline.Timeline, error) {
	sandbox, err := s.current()
	if err != nil {
		return nil, fmt.Errorf("read timeline: %w", err)
	}
	return sandbox.Timeline(ctx), nil
}

// Exit ends the shim after the answer to the request was sent.
func (s *Service) Exit() { s.opts.Exit() }

// Metrics returns the sums of the counters of all containers.
func (s *Service) Metrics(ctx context.Context) (*anypb.Any, error) {
	sandbox, err := s.current()
	if err != nil {
		return nil, err
	}
	var all []*v2.Metrics
	for _, c := range sandbox.Containers() {
		if c.Info().State != virtcontainers.Running && c.Info().State != virtcontainers.Paused {
			continue
		}
		stats, err := c.Stats(ctx)
		if errdefs.IsNotFound(err) {
			continue // it is being deleted
		}
		if err != nil {
			return nil, err
		}
		all = append(all, stats)
	}
	return s.shapeStats(metrics.Sum(all))
}
