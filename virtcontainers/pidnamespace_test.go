package virtcontainers_test

import (
	"fmt"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers"
)

// A container that asks for the PID namespace of a process joins that of the
// container whose stand-in the process is.
func TestPIDNamespaceOfAnotherContainer(t *testing.T) {
	p := newPod(t)
	containers := map[string]*virtcontainers.Container{sandboxID: p.run(sandboxID), "a": p.run("a"), "b": p.run("b")}
	for i, test := range []struct {
		path, want string
	}{
		{fmt.Sprintf("/proc/%d/ns/pid", containers[sandboxID].PID()), ""},
		{fmt.Sprintf("/proc/%d/ns/pid", containers["a"].PID()), "a"},
		{fmt.Sprintf("/proc/%d/ns/pid", containers["b"].PID()), "b"},
		{"/proc/4194303/ns/pid", ""},
		{"/run/ns/pinned", ""},
	} {
		id := fmt.Sprintf("joins-%d", i)
		opts := p.options(id, nil)
		opts.Bundle.Spec.Linux.Namespaces = []specs.LinuxNamespace{{Type: specs.PIDNamespace, Path: test.path}, {Type: specs.IPCNamespace}}
		if _, err := p.Create(t.Context(), opts, ignore); err != nil {
			t.Fatal(err)
		}
		if config := p.host.Agent.Config(id); !config.GetSharePidNamespace() || config.GetPidNamespaceOf() != test.want {
			t.Errorf("%s: shares %v, that of %q, want %q", test.path, config.GetSharePidNamespace(), config.GetPidNamespaceOf(), test.want)
		}
	}
}
