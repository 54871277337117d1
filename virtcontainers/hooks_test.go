package virtcontainers_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// noting returns a hook that records its name and the state that it gets, and
// exits with a code.
func noting(name string, code int) []specs.Hook {
	return []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", fmt.Sprintf("echo %s >> order; cat > %s.json; exit %d", name, name, code)}}}
}

// hooks returns one hook of each kind; the one named fails exits with an error.
func hooks(fails string) *specs.Hooks {
	code := func(name string) int {
		if name == fails {
			return 5
		}
		return 0
	}
	return &specs.Hooks{
		Prestart:      noting("prestart", code("prestart")), // deprecated; engines use it
		CreateRuntime: noting("createRuntime", code("createRuntime")),
		Poststart:     noting("poststart", code("poststart")),
		Poststop:      noting("poststop", code("poststop")),
	}
}

func orderOf(t *testing.T, b *bundle.Bundle) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(b.Dir, "order"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(data)), " ")
}

func TestHooksAreToldTheState(t *testing.T) {
	p := newPod(t)
	p.run(sandboxID)
	opts := p.options("c1", nil)
	opts.Bundle.Spec.Hooks = hooks("")
	opts.Bundle.Spec.Annotations = map[string]string{"a": "b"}
	c, err := p.Create(t.Context(), opts, ignore)
	if err != nil {
		t.Fatal(err)
	}
	if got := orderOf(t, opts.Bundle); got != "prestart createRuntime" {
		t.Errorf("before the start %s have run", got)
	}
	p.start(initOf(t, c))
	p.exits("c1", "", 0)
	statusOf(t, initOf(t, c))
	if got := orderOf(t, opts.Bundle); got != "prestart createRuntime poststart" {
		t.Errorf("before the delete %s have run", got)
	}
	if _, err := c.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := orderOf(t, opts.Bundle); got != "prestart createRuntime poststart poststop" {
		t.Errorf("%s have run", got)
	}
	net := fmt.Sprintf("/proc/%d/ns/net", c.PID())
	for name, want := range map[string]specs.State{
		"prestart":      {Status: specs.StateCreating, Pid: c.PID(), Annotations: map[string]string{"a": "b", "nerdctl/network-namespace": net}},
		"createRuntime": {Status: specs.StateCreating, Pid: c.PID(), Annotations: map[string]string{"a": "b", "nerdctl/network-namespace": net}},
		"poststart":     {Status: specs.StateRunning, Pid: c.PID(), Annotations: map[string]string{"a": "b", "nerdctl/network-namespace": net}},
		"poststop":      {Status: specs.StateStopped, Annotations: map[string]string{"a": "b"}},
	} {
		want.Version, want.ID, want.Bundle = specs.Version, "c1", opts.Bundle.Dir
		data, err := os.ReadFile(filepath.Join(opts.Bundle.Dir, name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var got specs.State
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	// The process that cleans up after a dead shim must not run them again.
	if err := virtcontainers.RunPoststop(t.Context(), opts.Bundle, "c1"); err != nil || strings.Count(orderOf(t, opts.Bundle), "poststop") != 1 {
		t.Errorf("the poststop hook ran twice, or %v", err)
	}
}

func TestHooksThatFailTheCreate(t *testing.T) {
	for name, want := range map[string]string{"prestart": "prestart poststop", "createRuntime": "prestart createRuntime poststop"} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			p.run(sandboxID)
			opts := p.options("c1", nil)
			opts.Bundle.Spec.Hooks = hooks(name)
			_, err := p.Create(t.Context(), opts, ignore)
			wantError(t, "create", err, func(error) bool { return true }, "hooks."+name+"[0]")
			if got := orderOf(t, opts.Bundle); got != want {
				t.Errorf("%s have run", got)
			}
			if left := withEnvironment(t, "KATABOX_CONTAINER=c1"); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
			p.run("c1") // nothing that is left gets in the way
		})
	}
}

func TestPoststartThatFails(t *testing.T) {
	p := newPod(t)
	p.run(sandboxID)
	opts := p.options("c1", nil)
	opts.Bundle.Spec.Hooks = hooks("poststart")
	c, err := p.Create(t.Context(), opts, ignore)
	if err != nil {
		t.Fatal(err)
	}
	err = initOf(t, c).Start(t.Context(), func(virtcontainers.ProcessInfo) { t.Error("the start was announced") })
	wantError(t, "start", err, func(error) bool { return true }, "hooks.poststart[0]")
	if status := statusOf(t, initOf(t, c)); status != virtcontainers.ExitKilled {
		t.Errorf("the container ended with %d", status)
	}
	if _, err := c.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestPoststopThatFails(t *testing.T) {
	p := newPod(t)
	p.run(sandboxID)
	opts := p.options("c1", nil)
	opts.Bundle.Spec.Hooks = hooks("poststop")
	c, err := p.Create(t.Context(), opts, ignore)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Delete(t.Context()); err != nil {
		t.Errorf("delete: %v", err)
	}
	if got := orderOf(t, opts.Bundle); got != "prestart createRuntime poststop" {
		t.Errorf("%s have run", got)
	}
}

func TestHooksThatCannotRun(t *testing.T) {
	p := newPod(t)
	opts := p.options(sandboxID, nil)
	opts.Bundle.Spec.Hooks = &specs.Hooks{CreateContainer: noting("createContainer", 0)}
	_, err := p.Create(t.Context(), opts, ignore)
	wantError(t, "create", err, errdefs.IsNotImplemented, "hooks.createContainer")
}
