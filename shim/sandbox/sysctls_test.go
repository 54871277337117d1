package sandbox_test

import (
	"maps"
	"strings"
	"testing"

	sandboxapi "github.com/containerd/containerd/api/runtime/sandbox/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/shim/task"
	"github.com/katabox/katabox/virtcontainers"
)

// message encodes one field of bytes, pair one entry of a map.
func message(num protowire.Number, content string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), content))
}

func pair(num protowire.Number, key, value string) string {
	return message(num, message(1, key)+message(2, value))
}

// The sysctls of a pod without a pause container are in its configuration alone. Its
// annotations there do not count, and the log says so: no pod_annotations choose them.
func TestPodsSysctls(t *testing.T) {
	var booted virtcontainers.Options
	s := newShimWith(t, func(o *task.Options) {
		o.Configured = func(o virtcontainers.Options) { booted = o }
	})
	linux := pair(3, "net.core.somaxconn", "7") + message(1, "/parent") + pair(3, "kernel.shm_rmid_forced", "1")
	options := message(1, "metadata") + pair(7, "io.katacontainers.config.agent.enable_tracing", "true") + pair(7, "other", "x") + message(8, linux)
	_, err := s.CreateSandbox(t.Context(), &sandboxapi.CreateSandboxRequest{
		SandboxID: id, Options: &anypb.Any{TypeUrl: "runtime.v1.PodSandboxConfig", Value: []byte(options)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.StartSandbox(t.Context(), &sandboxapi.StartSandboxRequest{SandboxID: id}); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"net.core.somaxconn": "7", "kernel.shm_rmid_forced": "1"}; !maps.Equal(booted.Sysctls, want) {
		t.Errorf("sysctls %v, want %v", booted.Sysctls, want)
	}
	if said := strings.Join(booted.Config.Warnings, "\n"); !strings.Contains(said, "enable_tracing") || strings.Contains(said, "other") {
		t.Errorf("warnings %q", booted.Config.Warnings)
	}
}
