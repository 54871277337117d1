package task_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/shim/shimtest/files"
	"github.com/katabox/katabox/shim/task"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// A Create that fails says what is wrong and leaves nothing, in the end not even the
// shim; the next one may succeed.
func TestCreateFails(t *testing.T) {
	const kind = "io.kubernetes.cri.container-type"
	tests := []struct {
		name    string
		arrange func(*testing.T, *shim, *taskapi.CreateTaskRequest)
		is      func(error) bool
		want    string
	}{
		{"checkpoint for a pod", func(_ *testing.T, _ *shim, r *taskapi.CreateTaskRequest) { r.Checkpoint = "/x" }, errdefs.IsFailedPrecondition, "checkpoint"},
		{"bad id", func(_ *testing.T, _ *shim, r *taskapi.CreateTaskRequest) { r.ID = "a/b" }, errdefs.IsInvalidArgument, "a/b"},
		{"no bundle", func(_ *testing.T, _ *shim, r *taskapi.CreateTaskRequest) { r.Bundle = "/no/such/bundle" }, errdefs.IsNotFound, "/no/such/bundle"},
		{"other sandbox", func(_ *testing.T, _ *shim, r *taskapi.CreateTaskRequest) { r.ID = "other" }, errdefs.IsInvalidArgument, "this shim serves pod"},
		{"container of another sandbox", func(t *testing.T, s *shim, r *taskapi.CreateTaskRequest) {
			r.ID, r.Bundle = "c1", s.bundle(t, "c1", kind, "container", "io.kubernetes.cri.sandbox-id", "other")
		}, errdefs.IsInvalidArgument, "belongs to sandbox other"},
		{"unknown kind", func(t *testing.T, s *shim, r *taskapi.CreateTaskRequest) {
			r.Bundle = s.bundle(t, sandboxID, kind, "vm")
		}, errdefs.IsInvalidArgument, `"vm"`},
		{"not a spec", func(t *testing.T, _ *shim, r *taskapi.CreateTaskRequest) {
			if err := os.WriteFile(filepath.Join(r.Bundle, "config.json"), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, errdefs.IsInvalidArgument, "config.json"},
		{"bad configuration", func(t *testing.T, _ *shim, _ *taskapi.CreateTaskRequest) {
			files.Configure(t, "[hypervisor.qemu]\ndefault_memory = \"much\"\n")
		}, errdefs.IsInvalidArgument, "default_memory"},
		{"no configuration", func(t *testing.T, _ *shim, _ *taskapi.CreateTaskRequest) {
			t.Setenv("KATA_CONF_FILE", "/no/such/configuration.toml")
		}, errdefs.IsInvalidArgument, "/no/such/configuration.toml"},
		{"options name no configuration", func(t *testing.T, _ *shim, r *taskapi.CreateTaskRequest) {
			r.Options = pack(t, "/no/such/options.toml")
		}, errdefs.IsInvalidArgument, "/no/such/options.toml"},
		{"annotation that is not enabled", func(t *testing.T, s *shim, r *taskapi.CreateTaskRequest) {
			r.Bundle = s.bundle(t, sandboxID, "io.katacontainers.config.hypervisor.default_memory", "512")
		}, errdefs.IsInvalidArgument, `default_memory = "512" is not enabled: want an expression in hypervisor.qemu.enable_annotations`},
		{"malformed annotation", func(t *testing.T, s *shim, r *taskapi.CreateTaskRequest) {
			r.Bundle = s.bundle(t, sandboxID, "com.github.containers.virtcontainers.sandbox_mem", "much")
		}, errdefs.IsInvalidArgument, `sandbox_mem = "much": want bytes`},
		{"broken options", func(t *testing.T, _ *shim, r *taskapi.CreateTaskRequest) {
			r.Options = pack(t, "")
			r.Options.Value = []byte("\xff\xff")
		}, errdefs.IsInvalidArgument, "decode runtime options"},
		{"stdio of another scheme", func(_ *testing.T, _ *shim, r *taskapi.CreateTaskRequest) { r.Stdin = "https://x" }, errdefs.IsInvalidArgument, "https"},
		{"no FIFO", func(_ *testing.T, _ *shim, r *taskapi.CreateTaskRequest) { r.Stdin = "/no/such/fifo" }, errdefs.IsNotFound, "/no/such/fifo"},
		{"boot", func(_ *testing.T, s *shim, _ *taskapi.CreateTaskRequest) {
			s.host.Agent.Fail(fakeguest.OpenTransport, errInjected)
		}, func(error) bool { return true }, "vsock: injected"},
		{"container in the guest", func(_ *testing.T, s *shim, _ *taskapi.CreateTaskRequest) {
			s.host.Agent.Fail("Create", errdefs.ErrInvalidArgument)
		}, errdefs.IsInvalidArgument, "create: "},
		{"not implemented in the guest", func(_ *testing.T, s *shim, _ *taskapi.CreateTaskRequest) {
			s.host.Agent.Fail("Create", errdefs.ErrNotImplemented)
		}, errdefs.IsFailedPrecondition, "create: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newShim(t, func(o *task.Options) { o.AbandonAfter = time.Millisecond })
			good := os.Getenv("KATA_CONF_FILE")
			r := s.request(t, sandboxID)
			tt.arrange(t, s, r)
			_, err := s.Create(t.Context(), r)
			wantError(t, "create", err, tt.is, tt.want)
			if status.Code(err) == codes.Unimplemented {
				t.Errorf("containerd would call the older API's Create: %v", err)
			}
			if left, err := s.host.Leftovers(); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
			if events := s.events.list(); len(events) > 0 {
				t.Errorf("events: %v", events)
			}
			s.awaitExit(t)
			t.Setenv("KATA_CONF_FILE", good)
			s.host.Agent.Fail(fakeguest.OpenTransport, nil)
			s.host.Agent.Fail("Create", nil)
			s.create(t, sandboxID)
		})
	}
}

// pack encodes runtime options that name a configuration file.
func pack(t *testing.T, path string) *anypb.Any {
	t.Helper()
	packed, err := anypb.New(&runtimeoptions.Options{ConfigPath: path})
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// The engine's options name the file; another runtime's options are ignored.
func TestOptions(t *testing.T) {
	s := newShim(t, nil)
	file := filepath.Join(t.TempDir(), "other.toml")
	text := "[hypervisor.qemu]\ndefault_memory = 300\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := s.request(t, sandboxID)
	r.Options = pack(t, file)
	if _, err := s.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := s.host.VM().Spec.MemoryMiB; got != 300 {
		t.Errorf("memory is %d MiB: the file was not read", got)
	}
	r = s.request(t, "c1")
	r.Options = &anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: []byte("\xff")}
	if _, err := s.Create(t.Context(), r); err != nil {
		t.Error(err)
	}
}

// One of runc's options concerns the shim rather than runc.
func TestShimCgroupOption(t *testing.T) {
	s := newShim(t, nil)
	r := s.request(t, sandboxID)
	packed, err := anypb.New(&runcoptions.Options{ShimCgroup: "/no/such/cgroup", BinaryName: "runc"})
	if err != nil {
		t.Fatal(err)
	}
	r.Options = packed
	_, err = s.Create(t.Context(), r)
	wantError(t, "a cgroup that is not there", err, errdefs.IsNotFound, "/no/such/cgroup")
	r.Options.Value = []byte("\xff")
	_, err = s.Create(t.Context(), r)
	wantError(t, "options that are none", err, errdefs.IsInvalidArgument, "decode runc's options")
	if packed, err = anypb.New(&runcoptions.Options{BinaryName: "runc"}); err != nil {
		t.Fatal(err)
	}
	// containerd's client sends the type's bare name, without
	// "type.googleapis.com/".
	r.Options = &anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: packed.Value}
	if _, err := s.Create(t.Context(), r); err != nil {
		t.Error(err)
	}
}

// The sandbox's annotations set the size of its machine. Those of its other
// containers, where engines repeat them, have no effect, except for the
// container's own.
func TestAnnotations(t *testing.T) {
	const (
		memory  = "com.github.containers.virtcontainers.sandbox_mem"
		storage = "com.github.containers.virtcontainers.storage_spec"
		kind    = "io.kubernetes.cri.container-type"
		of      = "io.kubernetes.cri.sandbox-id"
	)
	for _, extra := range [][]string{nil, {kind, "sandbox"}} { // a single container, a pod's
		s := newShim(t, nil)
		r := s.request(t, sandboxID)
		r.Bundle = s.bundle(t, sandboxID, append(extra, memory, "300M", "com.github.containers.virtcontainers.sandbox_cpu", "0.5")...)
		if _, err := s.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if got := s.host.VM().Spec.MemoryMiB; got != 300 {
			t.Errorf("memory is %d MiB, the annotation says 300", got)
		}
		r = s.request(t, "c1")
		r.Bundle = s.bundle(t, "c1", kind, "container", of, sandboxID, memory, "much")
		if _, err := s.Create(t.Context(), r); err != nil {
			t.Error(err)
		}
		r = s.request(t, "c2")
		r.Bundle = s.bundle(t, "c2", kind, "container", of, sandboxID, storage, "{}")
		_, err := s.Create(t.Context(), r)
		wantError(t, "create", err, errdefs.IsInvalidArgument, storage)
	}
}

// The hostname is the spec's.
func TestHostname(t *testing.T) {
	s := newShim(t, nil)
	s.create(t, sandboxID)
	if got := s.host.Agent.Network().GetHostname(); got != "host" {
		t.Errorf("the guest's host name is %q", got)
	}
	if spec := string(s.host.Agent.Spec(sandboxID)); !strings.Contains(spec, `"args":["true"]`) {
		t.Errorf("spec: %s", spec)
	}
}

// A container without a hostname has the host's, as with runc: a new UTS
// namespace starts as a copy.
func TestHostnameOfTheHost(t *testing.T) {
	s := newShim(t, nil)
	r := s.request(t, sandboxID)
	file := filepath.Join(r.Bundle, bundle.SpecFile)
	spec, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(strings.Replace(string(spec), `"hostname":"host",`, "", 1)), 0o600)
	}
	if err != nil || !strings.Contains(string(spec), `"hostname":"host",`) {
		t.Fatalf("take the hostname out of %s: %v", spec, err)
	}
	if _, err := s.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	want, err := os.Hostname()
	if got := s.host.Agent.Network().GetHostname(); err != nil || got != want {
		t.Errorf("the guest's host name is %q, want %q (%v)", got, want, err)
	}
}

// A shim whose first Create failed does not wait for its engine indefinitely.
func TestAbandoned(t *testing.T) {
	s := newShim(t, func(o *task.Options) { o.AbandonAfter = time.Millisecond })
	s.host.Agent.Fail(fakeguest.OpenTransport, errInjected)
	if _, err := s.Create(t.Context(), s.request(t, sandboxID)); err == nil {
		t.Fatal("a container was created")
	}
	s.awaitExit(t)
}

// A shim stays while its engine tries again.
func TestNotAbandonedMeanwhile(t *testing.T) {
	s := newShim(t, func(o *task.Options) { o.AbandonAfter = time.Second })
	s.host.Agent.Fail(fakeguest.OpenTransport, errInjected)
	if _, err := s.Create(t.Context(), s.request(t, sandboxID)); err == nil {
		t.Fatal("a container was created")
	}
	s.host.Agent.Hook(fakeguest.OpenTransport, func(context.Context, proto.Message) error {
		time.Sleep(1500 * time.Millisecond)
		return nil
	})
	s.create(t, sandboxID)
	if s.exits.Load() > 0 {
		t.Error("the shim ends")
	}
}

// A shim that serves a pod stays when a further container cannot be created.
func TestNotAbandoned(t *testing.T) {
	s := newShim(t, func(o *task.Options) { o.AbandonAfter = time.Millisecond })
	s.create(t, sandboxID)
	r := s.request(t, "c1")
	r.Bundle = "/no/such/bundle"
	if _, err := s.Create(t.Context(), r); err == nil {
		t.Fatal("a container was created")
	}
	time.Sleep(50 * time.Millisecond)
	if s.exits.Load() > 0 {
		t.Error("the shim ends")
	}
}

// awaitExit waits until the shim ends.
func (s *shim) awaitExit(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(patience); s.exits.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the shim does not end")
		}
	}
}

// A service container has the configuration of its sandbox, with the changes by
// the sandbox's annotations, whatever happens to the file.
func TestServiceConfiguration(t *testing.T) {
	const timeout = "io.katacontainers.config.runtime.create_container_timeout"
	s := newShim(t, nil)
	r := s.request(t, sandboxID)
	r.Bundle = s.bundle(t, sandboxID, timeout, "5")
	if _, err := s.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	files.Configure(t, "[hypervisor.qemu]\ndefault_memory = \"much\"\n")
	r = s.request(t, "c1")
	r.Bundle = s.bundle(t, "c1", "io.kubernetes.cri.container-type", "container", "io.kubernetes.cri.sandbox-id", sandboxID)
	s.host.Agent.Hang("Create")
	_, err := s.Create(t.Context(), r)
	wantError(t, "create", err, func(error) bool { return true }, "create_container_timeout of 5s is over")
}
