package task

import (
	"context"
	"fmt"

	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/log"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/metrics"
)

// Boot makes a sandbox that has no container of its own: the sandbox API's.
// Only ending the sandbox ends the shim then, not its last container.
func (s *Service) Boot(ctx context.Context, hostname string, network virtcontainers.NetworkSpec, cfg *config.Config) (*virtcontainers.Sandbox, error) {
	s.usedOnce.Do(func() { close(s.used) })
	sandbox, err := s.boot(ctx, s.sandboxOptions(ctx, hostname, network, cfg))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.keep = true
	s.mu.Unlock()
	return sandbox, nil
}

// sandboxOptions applies what of the configuration is the shim's own.
func (s *Service) sandboxOptions(ctx context.Context, hostname string, network virtcontainers.NetworkSpec, cfg *config.Config) virtcontainers.Options {
	if cfg.Runtime.Debug {
		_ = log.SetLevel("debug")
	}
	for _, w := range cfg.Warnings {
		log.G(ctx).Warn(w)
	}
	return virtcontainers.Options{
		ID: s.opts.ID, Hostname: hostname, Network: network, Config: cfg,
		Observer: &observer{ctx: context.WithoutCancel(ctx), publisher: s.opts.Publisher, exits: s.exits,
			execEnded: s.execEnded, saveExit: s.saveExit},
	}
}

// Current is the sandbox that was booted, or an errdefs.ErrNotFound.
func (s *Service) Current() (*virtcontainers.Sandbox, error) { return s.current() }

// Exit ends the shim after the answer to the request was sent.
func (s *Service) Exit() { s.opts.Exit() }

// Metrics are the counters of all containers together.
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
		if err != nil {
			return nil, err
		}
		var m v2.Metrics
		if err := proto.Unmarshal(stats.GetValue(), &m); err != nil {
			return nil, fmt.Errorf("decode stats of container %s: %w", c.ID, err)
		}
		all = append(all, &m)
	}
	sum, err := typeurl.MarshalAnyToProto(metrics.Sum(all))
	if err != nil {
		return nil, fmt.Errorf("encode stats of sandbox: %w", err)
	}
	return s.shapeStats(sum)
}
