package sandbox

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/api/runtime/sandbox/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/shim/rpc"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/netns"
	"github.com/katabox/katabox/virtcontainers/podnet"
	"github.com/katabox/katabox/virtcontainers/sizing"
)

// Host is the part of the shim that this service uses.
type Host interface {
	// Boot makes the sandbox, once. It sets the options' ID and Observer.
	Boot(ctx context.Context, opts virtcontainers.Options) (*virtcontainers.Sandbox, error)
	// Current returns the sandbox that was booted, or an errdefs.ErrNotFound.
	Current() (*virtcontainers.Sandbox, error)
	// Exit ends the shim after the answer was sent.
	Exit()
	// Metrics returns the sandbox's counters in the engine's format.
	Metrics(ctx context.Context) (*anypb.Any, error)
}

// The states, with CRI's names.
const (
	stateReady    = "SANDBOX_READY"
	stateNotReady = "SANDBOX_NOTREADY"
)

// Service is the sandbox API of one sandbox.
type Service struct {
	id string
	// file is the configuration file that the engine named, or "".
	file string
	host Host

	mu sync.Mutex // guards what follows
	// opts is nil until CreateSandbox.
	opts *virtcontainers.Options
	// createdAt is when the sandbox was booted.
	createdAt time.Time
}

var _ sandbox.TTRPCSandboxService = (*Service)(nil)

// New makes the service of the sandbox of that id. file is the configuration file that
// the engine named when it started the shim, or "": requests name none.
func New(id, file string, host Host) *Service { return &Service{id: id, file: file, host: host} }

// check refuses requests for another sandbox.
func (s *Service) check(id string) error {
	if id != s.id {
		return fmt.Errorf("sandbox %s: this shim serves %s: %w", id, s.id, errdefs.ErrNotFound)
	}
	return nil
}

// CreateSandbox reads the configuration; nothing is made yet, except files in the
// bundle.
func (s *Service) CreateSandbox(_ context.Context, r *sandbox.CreateSandboxRequest) (*sandbox.CreateSandboxResponse, error) {
	if err := s.check(r.SandboxID); err != nil {
		return nil, err
	}
	cfg, err := config.Load(s.file)
	if err == nil {
		cfg, err = cfg.Annotate(r.Annotations)
	}
	if err != nil {
		return nil, fmt.Errorf("create sandbox %s: %w: %w", s.id, err, errdefs.ErrInvalidArgument)
	}
	if err := checkNamespaces(r.Options, cfg); err != nil {
		return nil, fmt.Errorf("create sandbox %s: %w", s.id, err)
	}
	warnOfAnnotations(r, cfg)
	hostname, err := podHostname(r.Options)
	if err != nil {
		return nil, fmt.Errorf("create sandbox %s: %w", s.id, err)
	}
	mounts, resolvConf, err := podFiles(r, hostname)
	if err != nil {
		return nil, fmt.Errorf("create sandbox %s: %w", s.id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opts != nil {
		return nil, fmt.Errorf("create sandbox %s: %w", s.id, errdefs.ErrAlreadyExists)
	}
	s.opts = &virtcontainers.Options{
		Hostname: hostname, Config: cfg,
		Network:     podnet.Spec{Namespace: r.NetnsPath, ResolvConf: resolvConf},
		CgroupsPath: podCgroup(r.Options, s.id),
		StandIn:     true,
		Pod:         podName(r.Options),
		Size:        sizing.Hints{Pod: podResources(r.Options)},
		Sysctls:     podSysctls(r.Options),
		Mounts:      mounts,
	}
	return &sandbox.CreateSandboxResponse{}, nil
}

// warnOfAnnotations adds a warning to the configuration if the pod has annotations
// that do not count. With a pause container the engine passes on those that its
// pod_annotations choose; in the pod's configuration there are all.
func warnOfAnnotations(r *sandbox.CreateSandboxRequest, cfg *config.Config) {
	unread := podAnnotations(r.Options)
	maps.DeleteFunc(unread, func(name, _ string) bool { _, read := r.Annotations[name]; return read })
	if names := config.Ours(unread); len(names) > 0 {
		cfg.Warnings = append(cfg.Warnings, "the pod's annotations are ignored, because the engine has not chosen them (sandboxer = \"shim\"): "+strings.Join(names, ", "))
	}
}

// checkNamespaces refuses a pod that asks for namespaces of the host that its
// machine cannot share.
func checkNamespaces(options *anypb.Any, cfg *config.Config) error {
	switch {
	case hostNamespace(options, fieldNetwork):
		return netns.ErrHost
	case cfg.Runtime.AllowHostNamespaces:
		return nil // the specs of its containers are checked later
	case hostNamespace(options, fieldPID):
		return fmt.Errorf("hostPID: a virtual machine does not have the host's processes: %w", errdefs.ErrInvalidArgument)
	case hostNamespace(options, fieldIPC):
		return fmt.Errorf("hostIPC: a virtual machine does not have the host's System V IPC: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}

// StartSandbox boots the machine.
func (s *Service) StartSandbox(ctx context.Context, r *sandbox.StartSandboxRequest) (*sandbox.StartSandboxResponse, error) {
	if err := s.check(r.SandboxID); err != nil {
		return nil, err
	}
	s.mu.Lock()
	opts := s.opts
	s.mu.Unlock()
	if opts == nil {
		return nil, fmt.Errorf("start sandbox %s: it was not created: %w", s.id, errdefs.ErrFailedPrecondition)
	}
	ctx, cancel := rpc.Within(ctx, "create_container_timeout", opts.Config.Runtime.CreateContainerTimeout)
	defer cancel()
	pod, err := s.host.Boot(ctx, *opts)
	if err != nil {
		return nil, rpc.WithCause(ctx, err)
	}
	now := time.Now()
	s.mu.Lock()
	s.createdAt = now
	s.mu.Unlock()
	return &sandbox.StartSandboxResponse{Pid: uint32(pod.PID()), CreatedAt: timestamppb.New(now)}, nil
}

// Platform returns the guest's platform.
func (s *Service) Platform(_ context.Context, r *sandbox.PlatformRequest) (*sandbox.PlatformResponse, error) {
	if err := s.check(r.SandboxID); err != nil {
		return nil, err
	}
	return &sandbox.PlatformResponse{Platform: &types.Platform{OS: "linux", Architecture: runtime.GOARCH}}, nil
}

// StopSandbox ends the machine and everything in it. What could not be undone is an
// error of the calls that waited for it, and of no later one: a stopped sandbox stays
// stopped.
func (s *Service) StopSandbox(ctx context.Context, r *sandbox.StopSandboxRequest) (*sandbox.StopSandboxResponse, error) {
	if err := s.check(r.SandboxID); err != nil {
		return nil, err
	}
	pod, err := s.host.Current()
	if errdefs.IsNotFound(err) {
		return &sandbox.StopSandboxResponse{}, nil // it never ran
	}
	if err != nil {
		return nil, err
	}
	before := pod.HasStopped()
	if err := pod.Stop(ctx); err != nil && !before {
		return nil, err
	}
	return &sandbox.StopSandboxResponse{}, nil
}

// WaitSandbox answers when the machine has ended.
func (s *Service) WaitSandbox(ctx context.Context, r *sandbox.WaitSandboxRequest) (*sandbox.WaitSandboxResponse, error) {
	if err := s.check(r.SandboxID); err != nil {
		return nil, err
	}
	pod, err := s.host.Current()
	if err != nil {
		return nil, err
	}
	select {
	case <-pod.Stopped():
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for sandbox %s: %w", s.id, context.Cause(ctx))
	}
	end := pod.End()
	return &sandbox.WaitSandboxResponse{ExitStatus: end.Status, ExitedAt: timestamppb.New(end.At)}, nil
}

// SandboxStatus returns the sandbox's state.
func (s *Service) SandboxStatus(_ context.Context, r *sandbox.SandboxStatusRequest) (*sandbox.SandboxStatusResponse, error) {
	if err := s.check(r.SandboxID); err != nil {
		return nil, err
	}
	resp := &sandbox.SandboxStatusResponse{SandboxID: s.id, State: stateNotReady}
	pod, err := s.host.Current()
	if err != nil {
		return resp, nil //nolint:nilerr // not started yet
	}
	s.mu.Lock()
	resp.Pid, resp.CreatedAt = uint32(pod.PID()), timestamppb.New(s.createdAt)
	s.mu.Unlock()
	if pod.HasStopped() {
		resp.ExitedAt = timestamppb.New(pod.End().At)
	} else {
		resp.State = stateReady
	}
	return resp, nil
}

// PingSandbox answers as long as the guest does.
func (s *Service) PingSandbox(ctx context.Context, r *sandbox.PingRequest) (*sandbox.PingResponse, error) {
	if err := s.check(r.SandboxID); err != nil {
		return nil, err
	}
	pod, err := s.host.Current()
	if err == nil {
		err = pod.Ping(ctx)
	}
	if err != nil {
		return nil, err
	}
	return &sandbox.PingResponse{}, nil
}

// ShutdownSandbox ends the sandbox, then the shim. The teardown has logged what it could
// not undo. That is no error here: only after a Shutdown without one does containerd
// call "delete" (plugins/sandbox, Shutdown), which removes what is left.
func (s *Service) ShutdownSandbox(ctx context.Context, r *sandbox.ShutdownSandboxRequest) (*sandbox.ShutdownSandboxResponse, error) {
	if err := s.check(r.SandboxID); err != nil {
		return nil, err
	}
	pod, err := s.host.Current()
	if err == nil {
		if err = pod.Stop(ctx); pod.HasStopped() {
			err = nil
		}
	}
	if err != nil && !errdefs.IsNotFound(err) { // a pod that is not found never ran
		return nil, err
	}
	s.host.Exit()
	return &sandbox.ShutdownSandboxResponse{}, nil
}

// SandboxMetrics returns the sums of the counters of all the sandbox's
// containers.
func (s *Service) SandboxMetrics(ctx context.Context, r *sandbox.SandboxMetricsRequest) (*sandbox.SandboxMetricsResponse, error) {
	if err := s.check(r.SandboxID); err != nil {
		return nil, err
	}
	data, err := s.host.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	return &sandbox.SandboxMetricsResponse{Metrics: &types.Metric{Timestamp: timestamppb.Now(), ID: s.id, Data: data}}, nil
}

// UpdateSandbox does nothing yet; some engines expect the method.
func (s *Service) UpdateSandbox(context.Context, *sandbox.UpdateSandboxRequest) (*sandbox.UpdateSandboxResponse, error) {
	return nil, fmt.Errorf("update sandbox: %w", errdefs.ErrNotImplemented)
}
