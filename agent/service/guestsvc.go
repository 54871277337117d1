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

// WarmUp implements the Guest service.
func (s guestService) WarmUp(context.Context, *api.WarmUpRequest) (*api.WarmUpResponse, error) {
	if err := s.pod.warmUp(); err != nil {
		return nil, statusOf(err)
	}
	return &api.WarmUpResponse{}, nil
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

// PowerOff implements the Guest service.
func (s guestService) PowerOff(ctx context.Context, _ *api.PowerOffRequest) (*api.PowerOffResponse, error) {
	log.G(ctx).Info("powering off")
	if err := s.powerOff(); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return &api.PowerOffResponse{}, nil
}

// warmUp runs a container before there is a pod. After a failure the host
// discards the machine.
func (p *Pod) warmUp() error {
	p.mu.Lock()
	late := p.setUp || p.warming
	p.warming = p.warming || !late
	p.mu.Unlock()
	if late {
		return fmt.Errorf("warm up: the guest already has a pod, or is being warmed up: %w", errdefs.ErrFailedPrecondition)
	}
	err := p.config.Runtime.WarmUp()
	p.mu.Lock()
	p.warming = false
	p.mu.Unlock()
	return err
}

// setup gives the guest its pod. A failed setup is not tried again: the host
// discards the machine.
func (p *Pod) setup(ctx context.Context, req *api.SetupSandboxRequest) error {
	if err := p.beginSetup(); err != nil {
		return fmt.Errorf("set up sandbox: %w", err)
	}
	if err := refresh(req); err != nil {
		return fmt.Errorf("set up sandbox: %w", err)
	}
	for _, module := range req.GetKernelModules() {
		if err := p.config.Mounter.Modules.Demand(module); err != nil {
			return err
		}
	}
	if err := p.setHooks(req.GetGuestHookPath()); err != nil {
		return err
	}
	if err := guest.PinNamespaces(p.nsPath("")); err != nil {
		return err
	}
	if err := p.disks.Mount(ctx, req.GetStorages()); err != nil {
		return err
	}
	p.mu.Lock()
	p.ready = true
	p.mu.Unlock()
	log.G(ctx).WithField("sandbox", req.GetSandboxId()).Info("sandbox set up")
	return nil
}

// beginSetup fails if the guest was set up before, or warms up.
func (p *Pod) beginSetup() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.setUp:
		return fmt.Errorf("it was set up before: %w", errdefs.ErrFailedPrecondition)
	case p.warming:
		return fmt.Errorf("the guest warms up: %w", errdefs.ErrFailedPrecondition)
	}
	p.setUp = true
	return nil
}

// hostState is what a guest cannot know when its machine begins, or goes on, as a
// copy of a saved one.
type hostState interface {
	GetEntropy() []byte
	GetHostTime() *timestamppb.Timestamp
}

var (
	_ hostState = (*api.SetupSandboxRequest)(nil)
	_ hostState = (*api.RejoinRequest)(nil)
)

// refresh reseeds the guest's random number generator and sets its clock, as far
// as the host has sent what is needed for it.
func refresh(host hostState) error {
	if err := reseed(host.GetEntropy()); err != nil {
		return err
	}
	if t := host.GetHostTime(); t.IsValid() {
		return guest.SetClock(t.AsTime())
	}
	return nil
}

func reseed(entropy []byte) error {
	switch len(entropy) {
	case 0:
		return nil
	case api.EntropyBytes:
		return guest.Reseed(entropy)
	}
	return fmt.Errorf("%d bytes of entropy, want %d: %w", len(entropy), api.EntropyBytes, errdefs.ErrInvalidArgument)
}

// setHooks makes the guest's hooks run for every container; an empty path means
// no hooks.
func (p *Pod) setHooks(dir string) error {
	if dir == "" {
		return nil
	}
	return p.config.Runtime.SetHooks(dir)
}
