package task_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/shim/shimtest/files"
)

// withNetNS rewrites a bundle's spec: it sets the path of the network namespace,
// or removes the namespace if path is nil.
func withNetNS(t *testing.T, bundle string, path *string) string {
	t.Helper()
	file := filepath.Join(bundle, "config.json")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		t.Fatal(err)
	}
	spec.Linux.Namespaces = slices.DeleteFunc(spec.Linux.Namespaces, func(ns specs.LinuxNamespace) bool { return ns.Type == specs.NetworkNamespace })
	if path != nil {
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: *path})
	}
	if data, err = json.Marshal(spec); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return bundle
}

// A single container whose spec asks for the host's network gets its own network.
// By CRI that is an error, unless pods have no network anyway.
func TestHostNetwork(t *testing.T) {
	host := "/proc/self/ns/net"
	const noNetwork = "[runtime]\ndisable_new_netns = true\ninternetworking_model = \"none\"\n"
	for _, test := range []struct {
		name, config string
		path         *string
		pod          bool
		is           func(error) bool
	}{
		{name: "single, no namespace"},
		{name: "single, the host's", path: &host},
		{name: "pod, no namespace", pod: true, is: errdefs.IsInvalidArgument},
		{name: "pod, the host's", path: &host, pod: true, is: errdefs.IsInvalidArgument},
		{name: "pod, no namespace, no network", pod: true, config: noNetwork},
		{name: "pod, the host's, no network", path: &host, pod: true, config: noNetwork},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newShim(t, nil)
			files.Configure(t, test.config)
			var kind []string
			if test.pod {
				kind = []string{"io.kubernetes.cri.container-type", "sandbox"}
			}
			r := &taskapi.CreateTaskRequest{ID: sandboxID, Bundle: withNetNS(t, s.bundle(t, sandboxID, kind...), test.path)}
			_, err := s.Create(t.Context(), r)
			switch {
			case test.is == nil && err != nil:
				t.Error(err)
			case test.is != nil:
				wantError(t, "create", err, test.is, "network")
			}
		})
	}
}
