package sandbox_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	sandboxapi "github.com/containerd/containerd/api/runtime/sandbox/v1"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/shim/sandbox"
	"github.com/katabox/katabox/shim/shimtest/files"
	"github.com/katabox/katabox/shim/task"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

func TestMain(m *testing.M) {
	log.L.Logger.SetLevel(logrus.PanicLevel)
	goleak.VerifyTestMain(m)
}

const id = "pod"

var errInjected = errors.New("injected")

// silent is an engine that wants no events.
type silent struct{}

func (silent) Publish(context.Context, string, proto.Message) {}

// shim is both services of a sandbox behind one socket.
type shim struct {
	sandboxapi.TTRPCSandboxService
	tasks taskapi.TTRPCTaskService
	host  *fakeguest.Host
	exits atomic.Int32
	// stopFails is set if an undo has failed: the sandbox's Stop says so to the end.
	stopFails bool
}

func newShim(t *testing.T) *shim {
	t.Helper()
	return newShimWith(t, func(*task.Options) {})
}

func newShimWith(t *testing.T, change func(*task.Options)) *shim {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("sandboxes mount, which needs root")
	}
	dir, err := os.MkdirTemp("", "kb") //nolint:usetesting // t.TempDir gives names too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	files.Configure(t, "")
	s := &shim{host: fakeguest.New(dir)}
	opts := task.Options{ID: id, Platform: s.host.Platform(), Publisher: silent{}, Exit: func() { s.exits.Add(1) }}
	change(&opts)
	service := task.New(opts)
	s.serve(t, filepath.Join(dir, "shim.sock"), service)
	t.Cleanup(func() {
		if err := service.Stop(context.Background()); (err != nil) != s.stopFails {
			t.Error(err)
		}
		if left, err := s.host.Leftovers(); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		if err := s.host.Clear(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *shim) serve(t *testing.T, socket string, service *task.Service) {
	t.Helper()
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	task.Register(server, service)
	sandbox.Register(server, sandbox.New(id, "", service))
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(context.Background(), l)
	}()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	client := ttrpc.NewClient(conn)
	s.TTRPCSandboxService, s.tasks = sandboxapi.NewTTRPCSandboxClient(client), taskapi.NewTTRPCTaskClient(client)
	t.Cleanup(func() {
		_, _ = client.Close(), server.Close()
		<-served
	})
}

// hostname encodes the part of CRI's PodSandboxConfig that is read.
func hostname(name string) *anypb.Any {
	value := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte("metadata"))
	value = protowire.AppendString(protowire.AppendTag(value, 2, protowire.BytesType), name)
	return &anypb.Any{TypeUrl: "runtime.v1.PodSandboxConfig", Value: value}
}

// boot creates and starts the sandbox.
func (s *shim) boot(t *testing.T) *sandboxapi.StartSandboxResponse {
	t.Helper()
	if _, err := s.CreateSandbox(t.Context(), &sandboxapi.CreateSandboxRequest{SandboxID: id, BundlePath: t.TempDir(), Options: hostname("web")}); err != nil {
		t.Fatal(err)
	}
	started, err := s.StartSandbox(t.Context(), &sandboxapi.StartSandboxRequest{SandboxID: id})
	if err != nil {
		t.Fatal(err)
	}
	return started
}

// The pod's resources, which containerd passes in annotations with a pause container,
// are in its configuration.
func TestSize(t *testing.T) {
	s, ctx := newShim(t), t.Context()
	files.Configure(t, "[hypervisor.qemu]\ndefault_memory = 512\ndefault_vcpus = 1\ndefault_maxvcpus = 2\n[runtime]\nstatic_sandbox_resource_mgmt = true\n")
	number := func(b []byte, num protowire.Number, value uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), value)
	}
	message := func(num protowire.Number, content []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), content)
	}
	resources := number(number(nil, 3, 512), 4, 100<<20) // CPU shares, and a memory limit
	options := &anypb.Any{TypeUrl: "runtime.v1.PodSandboxConfig", Value: message(8, message(5, resources))}
	if _, err := s.CreateSandbox(ctx, &sandboxapi.CreateSandboxRequest{SandboxID: id, BundlePath: t.TempDir(), Options: options}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.StartSandbox(ctx, &sandboxapi.StartSandboxRequest{SandboxID: id}); err != nil {
		t.Fatal(err)
	}
	if got := s.host.VM().Spec; got.VCPUs != 2 || got.MemoryMiB != 640 {
		t.Errorf("a machine of %d vCPUs and %d MiB, want 2 and 640", got.VCPUs, got.MemoryMiB)
	}
}

func (s *shim) state(t *testing.T) string {
	t.Helper()
	status, err := s.SandboxStatus(t.Context(), &sandboxapi.SandboxStatusRequest{SandboxID: id})
	if err != nil {
		t.Fatal(err)
	}
	return status.State
}

// wantError fails the test unless err, which came over the wire, is of that kind.
func wantError(t *testing.T, what string, err error, is func(error) bool) {
	t.Helper()
	if err == nil || !is(errgrpc.ToNative(err)) {
		t.Errorf("%s: got error %v", what, err)
	}
}

// run makes a service container in the sandbox.
func (s *shim) run(t *testing.T, container string) {
	t.Helper()
	bundle := filepath.Join(s.host.RunDir, "bundles", container)
	err := fakeguest.WriteBundle(bundle, map[string]string{
		"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": id,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.tasks.Create(t.Context(), &taskapi.CreateTaskRequest{ID: container, Bundle: bundle}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.tasks.Start(t.Context(), &taskapi.StartRequest{ID: container}); err != nil {
		t.Fatal(err)
	}
}

// A pod without a pause container lives longer than its containers.
func TestLife(t *testing.T) {
	s, ctx := newShim(t), t.Context()
	if got := s.state(t); got != "SANDBOX_NOTREADY" {
		t.Errorf("state %s before the start", got)
	}
	started := s.boot(t)
	if started.Pid == 0 || time.Since(started.CreatedAt.AsTime()).Abs() > time.Minute || s.state(t) != "SANDBOX_READY" {
		t.Errorf("started %v, state %s", started, s.state(t))
	}
	if got := s.host.Agent.Network().GetHostname(); got != "web" {
		t.Errorf("the guest's host name is %q", got)
	}
	if _, err := s.PingSandbox(ctx, &sandboxapi.PingRequest{SandboxID: id}); err != nil {
		t.Error(err)
	}
	platform, err := s.Platform(ctx, &sandboxapi.PlatformRequest{SandboxID: id})
	if err != nil || platform.Platform.GetOS() != "linux" {
		t.Errorf("platform %v, %v", platform, err)
	}
	s.run(t, "c1")
	s.checkMetrics(t)
	if err := s.host.Agent.Exit("c1", "", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.tasks.Wait(ctx, &taskapi.WaitRequest{ID: "c1"}); err != nil {
		t.Error(err)
	}
	if _, err := s.tasks.Delete(ctx, &taskapi.DeleteRequest{ID: "c1"}); err != nil {
		t.Error(err)
	}
	if _, err := s.tasks.Shutdown(ctx, &taskapi.ShutdownRequest{ID: "c1"}); err != nil || s.exits.Load() != 0 {
		t.Errorf("the shim ends with its last container: %v", err)
	}
	if got := s.state(t); got != "SANDBOX_READY" {
		t.Errorf("state %s without a container", got)
	}
	for range 2 {
		if _, err := s.StopSandbox(ctx, &sandboxapi.StopSandboxRequest{SandboxID: id}); err != nil {
			t.Error(err)
		}
	}
	waited, err := s.WaitSandbox(ctx, &sandboxapi.WaitSandboxRequest{SandboxID: id})
	if err != nil || waited.ExitStatus != 0 || !waited.ExitedAt.IsValid() {
		t.Errorf("waited %v, %v", waited, err)
	}
	if got := s.state(t); got != "SANDBOX_NOTREADY" {
		t.Errorf("state %s after the stop", got)
	}
	_, err = s.PingSandbox(ctx, &sandboxapi.PingRequest{SandboxID: id})
	wantError(t, "ping of what has stopped", err, errdefs.IsUnavailable)
	if _, err := s.ShutdownSandbox(ctx, &sandboxapi.ShutdownSandboxRequest{SandboxID: id}); err != nil || s.exits.Load() != 1 {
		t.Errorf("the shim does not end: %v", err)
	}
}

func (s *shim) checkMetrics(t *testing.T) {
	t.Helper()
	data, err := proto.Marshal(&v2.Metrics{Pids: &v2.PidsStat{Current: 3}})
	if err != nil {
		t.Fatal(err)
	}
	s.host.Agent.SetMetrics(data)
	metrics, err := s.SandboxMetrics(t.Context(), &sandboxapi.SandboxMetricsRequest{SandboxID: id})
	if err != nil || metrics.Metrics.GetID() != id || len(metrics.Metrics.GetData().GetValue()) == 0 {
		t.Errorf("metrics %v, %v", metrics, err)
	}
	s.host.Agent.Fail("Stats", errInjected)
	if _, err = s.SandboxMetrics(t.Context(), &sandboxapi.SandboxMetricsRequest{SandboxID: id}); err == nil {
		t.Error("metrics that cannot be read are no error")
	}
	s.host.Agent.Fail("Stats", errdefs.ErrNotFound) // a container that is being deleted
	if _, err = s.SandboxMetrics(t.Context(), &sandboxapi.SandboxMetricsRequest{SandboxID: id}); err != nil {
		t.Errorf("metrics beside a deletion: %v", err)
	}
	s.host.Agent.Fail("Stats", nil)
}

func TestErrors(t *testing.T) {
	s, ctx := newShim(t), t.Context()
	_, err := s.StartSandbox(ctx, &sandboxapi.StartSandboxRequest{SandboxID: id})
	wantError(t, "start of what was not created", err, errdefs.IsFailedPrecondition)
	_, err = s.WaitSandbox(ctx, &sandboxapi.WaitSandboxRequest{SandboxID: id})
	wantError(t, "wait for what was not started", err, errdefs.IsNotFound)
	if _, err := s.StopSandbox(ctx, &sandboxapi.StopSandboxRequest{SandboxID: id}); err != nil {
		t.Errorf("stop of what never ran: %v", err)
	}
	good := os.Getenv("KATA_CONF_FILE")
	t.Setenv("KATA_CONF_FILE", "/no/such/configuration.toml")
	_, err = s.CreateSandbox(ctx, &sandboxapi.CreateSandboxRequest{SandboxID: id})
	wantError(t, "no configuration", err, errdefs.IsInvalidArgument)
	t.Setenv("KATA_CONF_FILE", good)
	_, err = s.CreateSandbox(ctx, &sandboxapi.CreateSandboxRequest{SandboxID: id, Annotations: map[string]string{
		"io.katacontainers.config.runtime.create_container_timeout": "soon",
	}})
	wantError(t, "a malformed annotation", err, errdefs.IsInvalidArgument)
	s.host.Agent.Fail("SetupSandbox", errInjected)
	if _, err = s.CreateSandbox(ctx, &sandboxapi.CreateSandboxRequest{SandboxID: id}); err != nil {
		t.Fatal(err)
	}
	_, err = s.CreateSandbox(ctx, &sandboxapi.CreateSandboxRequest{SandboxID: id})
	wantError(t, "create again", err, errdefs.IsAlreadyExists)
	if _, err = s.StartSandbox(ctx, &sandboxapi.StartSandboxRequest{SandboxID: id}); err == nil || !strings.Contains(err.Error(), "injected") {
		t.Errorf("a boot that fails: %v", err)
	}
	s.host.Agent.Fail("SetupSandbox", nil)
	if _, err = s.StartSandbox(ctx, &sandboxapi.StartSandboxRequest{SandboxID: id}); err != nil {
		t.Error(err)
	}
	_, err = s.StartSandbox(ctx, &sandboxapi.StartSandboxRequest{SandboxID: id})
	wantError(t, "start again", err, errdefs.IsAlreadyExists)
	ended, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err = s.WaitSandbox(ended, &sandboxapi.WaitSandboxRequest{SandboxID: id}); err == nil {
		t.Error("a wait ended before the sandbox")
	}
	_, err = s.UpdateSandbox(ctx, &sandboxapi.UpdateSandboxRequest{SandboxID: id})
	wantError(t, "update", err, errdefs.IsNotImplemented)
}

// A guest that has seen a call's deadline over does not say whose it was: the error
// of the start does.
func TestDeadlineIsNamed(t *testing.T) {
	s, ctx := newShim(t), t.Context()
	_, err := s.CreateSandbox(ctx, &sandboxapi.CreateSandboxRequest{SandboxID: id, Annotations: map[string]string{
		"io.katacontainers.config.runtime.create_container_timeout": "1",
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.host.Agent.Fail("SetupSandbox", context.DeadlineExceeded)
	_, err = s.StartSandbox(ctx, &sandboxapi.StartSandboxRequest{SandboxID: id})
	const want = "create_container_timeout of 1s is over"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("want %q, got: %v", want, err)
	}
}

// Requests for another sandbox are refused.
func TestOtherSandbox(t *testing.T) {
	s, ctx := newShim(t), t.Context()
	const other = "other"
	for name, call := range map[string]func() error{
		"Create": func() error {
			_, err := s.CreateSandbox(ctx, &sandboxapi.CreateSandboxRequest{SandboxID: other})
			return err
		},
		"Start": func() error {
			_, err := s.StartSandbox(ctx, &sandboxapi.StartSandboxRequest{SandboxID: other})
			return err
		},
		"Platform": func() error { _, err := s.Platform(ctx, &sandboxapi.PlatformRequest{SandboxID: other}); return err },
		"Stop": func() error {
			_, err := s.StopSandbox(ctx, &sandboxapi.StopSandboxRequest{SandboxID: other})
			return err
		},
		"Wait": func() error {
			_, err := s.WaitSandbox(ctx, &sandboxapi.WaitSandboxRequest{SandboxID: other})
			return err
		},
		"Status": func() error {
			_, err := s.SandboxStatus(ctx, &sandboxapi.SandboxStatusRequest{SandboxID: other})
			return err
		},
		"Ping": func() error { _, err := s.PingSandbox(ctx, &sandboxapi.PingRequest{SandboxID: other}); return err },
		"Shutdown": func() error {
			_, err := s.ShutdownSandbox(ctx, &sandboxapi.ShutdownSandboxRequest{SandboxID: other})
			return err
		},
		"Metrics": func() error {
			_, err := s.SandboxMetrics(ctx, &sandboxapi.SandboxMetricsRequest{SandboxID: other})
			return err
		},
	} {
		wantError(t, name, call(), errdefs.IsNotFound)
	}
	if s.exits.Load() != 0 {
		t.Error("the shim ends")
	}
}
