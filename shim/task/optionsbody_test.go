package task_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/shim/task"
	"github.com/katabox/katabox/virtcontainers"
)

// containerd passes a runtime's options as they are in its own configuration, if they
// name no file (internal/cri/config, GenerateRuntimeOptions). The pod's log says that
// they do not count.
func TestOptionsWithoutAFile(t *testing.T) {
	for body, want := range map[string]bool{"[hypervisor.qemu]\ndefault_memory = 300\n": true, "": false} {
		var warnings []string
		s := newShim(t, func(o *task.Options) {
			o.Configured = func(o virtcontainers.Options) { warnings = o.Config.Warnings }
		})
		r := s.request(t, sandboxID)
		var err error
		if r.Options, err = anypb.New(&runtimeoptions.Options{ConfigBody: []byte(body)}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if said := slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "ConfigPath") }); said != want {
			t.Errorf("%q: warnings %q", body, warnings)
		}
	}
}
