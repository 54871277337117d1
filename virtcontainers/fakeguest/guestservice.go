package fakeguest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/agent/api"
)

// guestService is the Guest service of the agent.
type guestService struct{ agent *Agent }

var _ api.GuestService = guestService{}

// Hello implements the Guest service.
func (s guestService) Hello(ctx context.Context, req *api.HelloRequest) (*api.HelloResponse, error) {
	if err := s.agent.enter(ctx, "Hello", req); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return &api.HelloResponse{ProtocolVersion: s.agent.version(), AgentVersion: "fake", KernelRelease: "0.0"}, nil
}

// SetClock implements the Guest service. It sets nothing.
func (s guestService) SetClock(ctx context.Context, req *api.SetClockRequest) (*api.SetClockResponse, error) {
	return answer(ctx, s.agent, "SetClock", req, func() (*api.SetClockResponse, error) {
		if !req.GetHostTime().IsValid() {
			return nil, fmt.Errorf("set clock: the time is missing or invalid: %w", errdefs.ErrInvalidArgument)
		}
		return &api.SetClockResponse{}, nil
	})
}

// AdjustClock implements the Guest service. The clock is right, whatever is added.
func (s guestService) AdjustClock(ctx context.Context, req *api.AdjustClockRequest) (*api.AdjustClockResponse, error) {
	if err := s.agent.enter(ctx, "AdjustClock", req); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return &api.AdjustClockResponse{Now: timestamppb.Now()}, nil
}

// Prepare implements the Guest service.
func (s guestService) Prepare(ctx context.Context, req *api.PrepareRequest) (*api.PrepareResponse, error) {
	return answer(ctx, s.agent, "Prepare", req, func() (*api.PrepareResponse, error) {
		s.agent.mu.Lock()
		defer s.agent.mu.Unlock()
		if err := s.agent.move(prepared, bare, prepared); err != nil {
			return nil, fmt.Errorf("prepare: %w", err)
		}
		s.agent.prepared = req
		return &api.PrepareResponse{}, nil
	})
}

// Prepared is what the guest was told to mount before it had a pod; nil if it was
// not.
func (a *Agent) Prepared() *api.PrepareRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.prepared
}

// SetupSandbox implements the Guest service.
func (s guestService) SetupSandbox(ctx context.Context, req *api.SetupSandboxRequest) (*api.SetupSandboxResponse, error) {
	return answer(ctx, s.agent, "SetupSandbox", req, func() (*api.SetupSandboxResponse, error) {
		s.agent.mu.Lock()
		defer s.agent.mu.Unlock()
		if err := s.agent.move(failed, bare, prepared); err != nil {
			return nil, fmt.Errorf("set up sandbox: %w", err)
		}
		if n := len(s.agent.containers); n > 0 {
			return nil, fmt.Errorf("set up sandbox: there are %d containers: %w", n, errdefs.ErrFailedPrecondition)
		}
		s.agent.setup = req
		s.agent.events.clear()
		return &api.SetupSandboxResponse{}, s.agent.move(ready, failed)
	})
}

// SetNetwork implements the Guest service. It changes nothing and says so.
func (s guestService) SetNetwork(ctx context.Context, req *api.SetNetworkRequest) (*api.SetNetworkResponse, error) {
	return answerOpen(ctx, s.agent, "SetNetwork", req, func() (*api.SetNetworkResponse, error) {
		s.agent.network = req
		return &api.SetNetworkResponse{}, nil
	})
}

// AddStorages implements the Guest service. It mounts nothing.
func (s guestService) AddStorages(ctx context.Context, req *api.AddStoragesRequest) (*api.AddStoragesResponse, error) {
	return answerOpen(ctx, s.agent, "AddStorages", req, func() (*api.AddStoragesResponse, error) {
		return &api.AddStoragesResponse{}, nil
	})
}

// ChangeFiles implements the Guest service.
func (s guestService) ChangeFiles(ctx context.Context, req *api.ChangeFilesRequest) (*api.ChangeFilesResponse, error) {
	return answerOpen(ctx, s.agent, "ChangeFiles", req, func() (*api.ChangeFilesResponse, error) {
		s.agent.files = append(s.agent.files, req.GetChanges()...)
		return &api.ChangeFilesResponse{}, nil
	})
}

// ReadFile implements the Guest service.
func (s guestService) ReadFile(ctx context.Context, req *api.ReadFileRequest) (*api.ReadFileResponse, error) {
	return answerOpen(ctx, s.agent, "ReadFile", req, func() (*api.ReadFileResponse, error) {
		return &api.ReadFileResponse{Content: s.agent.written}, nil
	})
}

// SetFile sets what the agent answers to ReadFile.
func (a *Agent) SetFile(content []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.written = content
}

// Timeline implements the Guest service.
func (s guestService) Timeline(ctx context.Context, req *api.TimelineRequest) (*api.TimelineResponse, error) {
	return answer(ctx, s.agent, "Timeline", req, func() (*api.TimelineResponse, error) {
		s.agent.mu.Lock()
		defer s.agent.mu.Unlock()
		return cmp.Or(s.agent.timeline, &api.TimelineResponse{}), nil
	})
}

// Metrics implements the Guest service.
func (s guestService) Metrics(ctx context.Context, req *api.MetricsRequest) (*api.MetricsResponse, error) {
	return answer(ctx, s.agent, "Metrics", req, func() (*api.MetricsResponse, error) {
		s.agent.mu.Lock()
		defer s.agent.mu.Unlock()
		return cmp.Or(s.agent.procFiles, &api.MetricsResponse{}), nil
	})
}

// Measure sets what the agent answers to Metrics.
func (a *Agent) Measure(metrics *api.MetricsResponse) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.procFiles = metrics
}

// Remember sets what the agent answers to Timeline.
func (a *Agent) Remember(timeline *api.TimelineResponse) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timeline = timeline
}

// VolumeStats implements the Guest service.
func (s guestService) VolumeStats(ctx context.Context, req *api.VolumeStatsRequest) (*api.VolumeStatsResponse, error) {
	return answer(ctx, s.agent, "VolumeStats", req, func() (*api.VolumeStatsResponse, error) {
		return s.agent.volume(req.GetTarget())
	})
}

// GrowVolume implements the Guest service: the file system is the disk.
func (s guestService) GrowVolume(ctx context.Context, req *api.GrowVolumeRequest) (*api.GrowVolumeResponse, error) {
	return answer(ctx, s.agent, "GrowVolume", req, func() (*api.GrowVolumeResponse, error) {
		stats, err := s.agent.volume(req.GetTarget())
		if err != nil {
			return nil, err
		}
		used, total := stats.GetUsedBytes(), req.GetDiskBytes()
		s.agent.Mount(req.GetTarget(), &api.VolumeStatsResponse{TotalBytes: total, AvailableBytes: total - used, UsedBytes: used})
		return &api.GrowVolumeResponse{}, nil
	})
}

// Mount has a file system on the target of a storage.
func (a *Agent) Mount(target string, stats *api.VolumeStatsResponse) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.volumes == nil {
		a.volumes = make(map[string]*api.VolumeStatsResponse)
	}
	a.volumes[target] = stats
}

func (a *Agent) volume(target string) (*api.VolumeStatsResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.checkOpen(); err != nil {
		return nil, fmt.Errorf("volume %q: %w", target, err)
	}
	stats, ok := a.volumes[target]
	if !ok {
		return nil, fmt.Errorf("volume %q: no disk is mounted there: %w", target, errdefs.ErrNotFound)
	}
	return stats, nil
}

// KeepMounts implements the Guest service: no container has mounts.
func (s guestService) KeepMounts(ctx context.Context, req *api.KeepMountsRequest) (*api.KeepMountsResponse, error) {
	return answer(ctx, s.agent, "KeepMounts", req, func() (*api.KeepMountsResponse, error) {
		_, _, err := s.agent.find(req.GetContainerId(), "")
		return &api.KeepMountsResponse{}, err
	})
}

// PowerOff implements the Guest service.
func (s guestService) PowerOff(ctx context.Context, req *api.PowerOffRequest) (*api.PowerOffResponse, error) {
	return &api.PowerOffResponse{}, errgrpc.ToGRPC(s.agent.enter(ctx, "PowerOff", req))
}

// Events implements the Guest service.
func (s guestService) Events(ctx context.Context, req *api.EventsRequest, out api.Guest_EventsServer) error {
	if err := s.agent.enter(ctx, "Events", req); err != nil {
		return errgrpc.ToGRPC(err)
	}
	return s.agent.queue().stream(ctx, out.Send)
}

// Speak makes the agent report a protocol version; 0 is the real one.
func (a *Agent) Speak(version uint32) {
	a.script.mu.Lock()
	defer a.script.mu.Unlock()
	a.script.version = version
}

func (a *Agent) version() uint32 {
	a.script.mu.Lock()
	defer a.script.mu.Unlock()
	if a.script.version == 0 {
		return api.ProtocolVersion
	}
	return a.script.version
}

// Setup returns the SetupSandbox request that the guest got, or nil.
func (a *Agent) Setup() *api.SetupSandboxRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.setup
}

// SetResources implements the Guest service: it reports all requested resources
// as present.
func (s guestService) SetResources(ctx context.Context, req *api.SetResourcesRequest) (*api.SetResourcesResponse, error) {
	return answer(ctx, s.agent, "SetResources", req, func() (*api.SetResourcesResponse, error) {
		s.agent.mu.Lock()
		defer s.agent.mu.Unlock()
		s.agent.resources = req
		return &api.SetResourcesResponse{Cpus: req.Cpus, MemoryMib: req.MemoryMib}, nil
	})
}

// LimitContainers implements the Guest service.
func (s guestService) LimitContainers(ctx context.Context, req *api.LimitContainersRequest) (*api.LimitContainersResponse, error) {
	return &api.LimitContainersResponse{}, errgrpc.ToGRPC(s.agent.enter(ctx, "LimitContainers", req))
}

// Resources is the last request about CPUs and memory, or nil.
func (a *Agent) Resources() *api.SetResourcesRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.resources
}

// Files returns all changes of files, in order.
func (a *Agent) Files() []*api.FileChange {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.files)
}

// Network is the last request that set the guest's network, or nil.
func (a *Agent) Network() *api.SetNetworkRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.network
}

// Send sends the host an event, even an invalid one. It does not block.
func (a *Agent) Send(ev *api.Event) { a.queue().add(ev) }

// OOM sends the host the event that the OOM killer killed a process in a
// container.
func (a *Agent) OOM(id string) {
	a.Send(&api.Event{Event: &api.Event_Oom{Oom: &api.OOM{ContainerId: id}}})
}

// EventsTaken returns how many events the host was sent.
func (a *Agent) EventsTaken() int {
	q := a.queue()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken
}

// EndEvents ends the stream of events.
func (a *Agent) EndEvents() { a.queue().close() }

func (a *Agent) queue() *eventQueue {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.events
}
