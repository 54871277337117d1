package task

import (
	"context"
	"fmt"

	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	eventtypes "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/katabox/katabox/shim/events"
	"github.com/katabox/katabox/virtcontainers/metrics"
)

// resourcesType is the type under which engines send OCI LinuxResources.
const resourcesType = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources"

// Pause freezes a container.
func (s *Service) Pause(ctx context.Context, r *task.PauseRequest) (*emptypb.Empty, error) {
	c, err := s.container(r.ID)
	if err != nil {
		return nil, err
	}
	return empty(c.Pause(ctx, func() {
		s.opts.Publisher.Publish(ctx, events.TopicPaused, &eventtypes.TaskPaused{ContainerID: r.ID})
	}))
}

// Resume lets a paused container run.
func (s *Service) Resume(ctx context.Context, r *task.ResumeRequest) (*emptypb.Empty, error) {
	c, err := s.container(r.ID)
	if err != nil {
		return nil, err
	}
	return empty(c.Resume(ctx, func() {
		s.opts.Publisher.Publish(ctx, events.TopicResumed, &eventtypes.TaskResumed{ContainerID: r.ID})
	}))
}

// Update changes a container's limits.
func (s *Service) Update(ctx context.Context, r *task.UpdateTaskRequest) (*emptypb.Empty, error) {
	c, err := s.container(r.ID)
	if err != nil {
		return nil, err
	}
	if r.Resources.GetTypeUrl() != resourcesType {
		return nil, fmt.Errorf("update container %s: resources of type %q, want %s: %w",
			r.ID, r.Resources.GetTypeUrl(), resourcesType, errdefs.ErrInvalidArgument)
	}
	return empty(c.Update(ctx, r.Resources))
}

// Stats returns a container's counters, in the form of the host's cgroups.
func (s *Service) Stats(ctx context.Context, r *task.StatsRequest) (*task.StatsResponse, error) {
	c, err := s.container(r.ID)
	if err != nil {
		return nil, err
	}
	counters, err := c.Stats(ctx)
	if err != nil {
		return nil, err
	}
	stats, err := s.shapeStats(counters)
	if err != nil {
		return nil, fmt.Errorf("stats of container %s: %w", r.ID, err)
	}
	return &task.StatsResponse{Stats: stats}, nil
}

// shapeStats encodes counters for the engine: the message is built here, not by
// the guest.
func (s *Service) shapeStats(m *v2.Metrics) (*anypb.Any, error) {
	switch {
	case s.policy.CgroupV1Stats:
		return typeurl.MarshalAnyToProto(metrics.ToV1(m, metrics.ISuladOperations))
	case hostHasCgroup2():
		return typeurl.MarshalAnyToProto(m)
	}
	return typeurl.MarshalAnyToProto(metrics.ToV1(m, metrics.KernelOperations))
}

// hostHasCgroup2 reports whether the host has only cgroup v2 (cgroups(7)).
func hostHasCgroup2() bool {
	var st unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup", &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}
