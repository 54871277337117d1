package task

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/api/runtime/task/v3"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/config"
)

// Checkpoint saves a container, with its whole machine, to a directory of the
// engine's. Like runc's shim it publishes no event.
func (s *Service) Checkpoint(ctx context.Context, r *task.CheckpointTaskRequest) (*emptypb.Empty, error) {
	c, err := s.container(r.ID)
	if err != nil {
		return nil, err
	}
	exit, err := exitAfter(r.Options)
	if err != nil {
		return nil, fmt.Errorf("checkpoint container %s: %w", r.ID, err)
	}
	return empty(c.Checkpoint(ctx, virtcontainers.CheckpointOptions{Dir: r.Path, Exit: exit}))
}

// exitAfter returns runc's option of whether the container ends once it is saved.
// The others are about CRIU, and what they allow to be saved is saved in any case.
func exitAfter(options *anypb.Any) (bool, error) {
	if options == nil || !options.MessageIs((*runcoptions.CheckpointOptions)(nil)) {
		return false, nil
	}
	var opts runcoptions.CheckpointOptions
	if err := options.UnmarshalTo(&opts); err != nil {
		return false, fmt.Errorf("decode the checkpoint's options: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return opts.Exit, nil
}

// checkRestorable refuses a checkpoint for a container that is not its sandbox's
// only one.
func checkRestorable(r *task.CreateTaskRequest, place bundle.Membership) error {
	if r.Checkpoint == "" || place.Kind == bundle.Single {
		return nil
	}
	return fmt.Errorf("create container %s from a checkpoint: it is one of a pod's containers, and only a container with its own sandbox can be restored: %w",
		r.ID, errdefs.ErrNotImplemented)
}

// openCheckpoint opens the checkpoint that a request names; nil if it names none.
func openCheckpoint(ctx context.Context, r *task.CreateTaskRequest, cfg *config.Config, opts virtcontainers.ContainerOptions) (*virtcontainers.Restoration, error) {
	if r.Checkpoint == "" {
		return nil, nil //nolint:nilnil // said above
	}
	return virtcontainers.OpenRestoration(ctx, r.Checkpoint, cfg, opts)
}
