package service

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/guest"
)

// Version is the agent's version, reported in Hello; the build sets it.
var Version = "dev"

// BootTimes are how long after the kernel's start the agent started and began
// to serve.
type BootTimes struct {
	Agent, Serving time.Duration
}

// guestService is the Guest API over a Pod.
type guestService struct {
	pod   *Pod
	times BootTimes
	// powerOff ends the machine.
	powerOff func() error
}

var _ api.GuestService = guestService{}

// Hello implements the Guest service.
func (s guestService) Hello(ctx context.Context, req *api.HelloRequest) (*api.HelloResponse, error) {
	if v := req.GetProtocolVersion(); v != api.ProtocolVersion {
		log.G(ctx).Warnf("host speaks protocol version %d, agent %d", v, api.ProtocolVersion)
	}
	return &api.HelloResponse{
		ProtocolVersion: api.ProtocolVersion,
		AgentVersion:    Version,
		KernelRelease:   kernelRelease(),
		BootToAgentUs:   uint64(s.times.Agent.Microseconds()),
		BootToServingUs: uint64(s.times.Serving.Microseconds()),
		AgentRss:        residentSet(),
		NowUs:           uint64(guest.SinceBoot().Microseconds()),
	}, nil
}

func kernelRelease() string {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return ""
	}
	return unix.ByteSliceToString(uts.Release[:])
}

// residentSet reads the agent's own resident set from /proc/self/statm, whose
// second field counts pages (proc(5)).
func residentSet() uint64 {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(statm))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}

// SetupSandbox implements the Guest service.
func (s guestService) SetupSandbox(ctx context.Context, req *api.SetupSandboxRequest) (*api.SetupSandboxResponse, error) {
	if err := s.pod.setup(ctx, req); err != nil {
		return nil, statusOf(err)
	}
	return &api.SetupSandboxResponse{}, nil
}

// SetClock implements the Guest service.
func (s guestService) SetClock(_ context.Context, req *api.SetClockRequest) (*api.SetClockResponse, error) {
	t := req.GetHostTime()
	if !t.IsValid() {
		return nil, statusOf(fmt.Errorf("set clock: the time is missing or invalid: %w", errdefs.ErrInvalidArgument))
	}
	if err := guest.SetClock(t.AsTime()); err != nil {
		return nil, statusOf(err)
	}
	return &api.SetClockResponse{}, nil
}

// AdjustClock implements the Guest service.
func (s guestService) AdjustClock(_ context.Context, req *api.AdjustClockRequest) (*api.AdjustClockResponse, error) {
	if err := guest.AdjustClock(time.Duration(req.GetCorrectionUs())*time.Microsecond, req.GetStep()); err != nil {
		return nil, statusOf(err)
	}
	return &api.AdjustClockResponse{Now: timestamppb.Now()}, nil
}

// Prepare implements the Guest service.
func (s guestService) Prepare(ctx context.Context, req *api.PrepareRequest) (*api.PrepareResponse, error) {
	if err := s.pod.prepareGuest(ctx, req); err != nil {
		return nil, statusOf(err)
	}
	return &api.PrepareResponse{}, nil
}

// Timeline implements the Guest service.
func (s guestService) Timeline(context.Context, *api.TimelineRequest) (*api.TimelineResponse, error) {
	list, forgotten := s.pod.config.Spans.Spans()
	resp := &api.TimelineResponse{Forgotten: uint64(forgotten)}
	for _, span := range list {
		resp.Spans = append(resp.Spans, &api.Span{
			ContainerId: span.Container, Name: span.Name,
			StartUs: uint64(span.Start.Microseconds()), EndUs: uint64(span.End.Microseconds()),
		})
	}
	return resp, nil
}

// Metrics implements the Guest service.
func (s guestService) Metrics(context.Context, *api.MetricsRequest) (*api.MetricsResponse, error) {
	return guest.ProcFiles(), nil
}

// Events implements the Guest service.
func (s guestService) Events(ctx context.Context, _ *api.EventsRequest, out api.Guest_EventsServer) error {
	return s.pod.events.stream(ctx, out.Send)
}

// KeepMounts implements the Guest service.
func (s guestService) KeepMounts(_ context.Context, req *api.KeepMountsRequest) (*api.KeepMountsResponse, error) {
	if err := s.pod.keepMounts(req.GetContainerId()); err != nil {
		return nil, statusOf(err)
	}
	return &api.KeepMountsResponse{}, nil
}

// PowerOff implements the Guest service.
func (s guestService) PowerOff(ctx context.Context, _ *api.PowerOffRequest) (*api.PowerOffResponse, error) {
	log.G(ctx).Info("powering off")
	if err := s.powerOff(); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return &api.PowerOffResponse{}, nil
}
