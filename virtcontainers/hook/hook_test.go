package hook_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"go.uber.org/goleak"

	"github.com/katabox/katabox/virtcontainers/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shell is a hook that runs a script.
func shell(script string) specs.Hook {
	return specs.Hook{Path: "/bin/sh", Args: []string{"hook", "-c", script}}
}

func state(t *testing.T) specs.State {
	t.Helper()
	return specs.State{
		Version: "1.0", ID: "c1", Status: specs.StateCreating, Pid: 7, Bundle: t.TempDir(), Annotations: map[string]string{"a": "b"},
	}
}

func TestRun(t *testing.T) {
	s := state(t)
	t.Setenv("OF_THE_SHIM", "yes")
	own := shell(`echo "$OWN $OF_THE_SHIM $0" > own`)
	own.Env = []string{"OWN=1"}
	err := hook.Run(t.Context(), hook.Prestart, []specs.Hook{shell(`cat > state; echo $OF_THE_SHIM > inherited`), own}, s)
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(s.Bundle, name)) // relative in the hook: it runs in the bundle
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	var got specs.State
	if err := json.Unmarshal([]byte(read("state")), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, got); diff != "" {
		t.Error(diff)
	}
	if got := read("inherited") + read("own"); got != "yes\n1  hook\n" {
		t.Errorf("environments: %q", got)
	}
}

func TestFailures(t *testing.T) {
	one := 1
	slow := shell("sleep 1000")
	slow.Timeout = &one
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the create was given up"))
	for name, test := range map[string]struct {
		ctx  context.Context //nolint:containedctx // one of the table's
		hook specs.Hook
		want []string
	}{
		"exit status": {t.Context(), shell("echo why >&2; exit 3"), []string{"hooks.createRuntime[0] /bin/sh", "exit status 3", "why"}},
		"not there":   {t.Context(), specs.Hook{Path: "/no/hook"}, []string{"/no/hook", "no such file"}},
		"timeout":     {t.Context(), slow, []string{"timeout of 1s is over"}},
		"cancelled":   {ended, shell("sleep 1000"), []string{"the create was given up"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := state(t)
			err := hook.Run(test.ctx, hook.CreateRuntime, []specs.Hook{test.hook, shell("> second")}, s)
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
			if _, err := os.Stat(filepath.Join(s.Bundle, "second")); err == nil {
				t.Error("a hook ran after one that failed")
			}
		})
	}
}

// A process that a hook leaves behind does not delay Run.
func TestDaemonOfAHook(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := state(t)
	if err := hook.Run(ctx, hook.Prestart, []specs.Hook{shell("sleep 90 & echo $! > daemon")}, s); err != nil {
		t.Error(err)
	}
	if out, err := exec.Command("sh", "-c", "kill $(cat "+s.Bundle+"/daemon)").CombinedOutput(); err != nil {
		t.Errorf("what the hook left behind: %v %s", err, out)
	}
}

// Too much output, and input that is not read.
func TestMuchOutput(t *testing.T) {
	s := state(t)
	s.Annotations["long"] = strings.Repeat("x", 1<<20)
	err := hook.Run(t.Context(), hook.Prestart, []specs.Hook{shell("exec <&-; head -c 10000000 /dev/zero | tr '\\0' y; exit 1")}, s)
	if err == nil || len(err.Error()) > 8<<10 {
		t.Errorf("got an error of %d bytes", len(err.Error()))
	}
}

func TestRunAll(t *testing.T) {
	s := state(t)
	err := hook.RunAll(t.Context(), time.Minute, hook.Poststop, []specs.Hook{shell("exit 1"), shell("> second")}, s)
	if err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(filepath.Join(s.Bundle, "second")); err != nil {
		t.Error("a hook that failed kept another from being run")
	}
}

// Each hook has its timeout, or else the fallback, whatever the others took.
func TestTimesOfHooks(t *testing.T) {
	s, long := state(t), 60
	slow, slower, last := shell("sleep 0.5; > first"), shell("sleep 0.5; > second"), shell("> last")
	slow.Timeout, slower.Timeout, last.Timeout = &long, &long, &long
	err := hook.RunAll(t.Context(), 300*time.Millisecond, hook.Poststop, []specs.Hook{slow, shell("sleep 1000"), slower, last}, s)
	if err == nil || !strings.Contains(err.Error(), "hooks.poststop[1] /bin/sh") || !strings.Contains(err.Error(), "had 300ms") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want an error of the second hook alone", err)
	}
	for _, name := range []string{"first", "second", "last"} {
		if _, err := os.Stat(filepath.Join(s.Bundle, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestCheck(t *testing.T) {
	zero := 0
	list := []specs.Hook{{Path: "/x"}}
	for name, test := range map[string]struct {
		hooks specs.Hooks
		is    func(error) bool
		want  string
	}{
		"fine":            {specs.Hooks{Prestart: list, CreateRuntime: list, Poststart: list, Poststop: list}, nil, ""},
		"createContainer": {specs.Hooks{CreateContainer: list}, errdefs.IsNotImplemented, "hooks.createContainer /x"},
		"startContainer":  {specs.Hooks{StartContainer: list}, errdefs.IsNotImplemented, "hooks.startContainer /x"},
		"relative":        {specs.Hooks{Poststop: []specs.Hook{{Path: "x"}}}, errdefs.IsInvalidArgument, `hooks.poststop[0].path is "x"`},
		"timeout":         {specs.Hooks{Poststart: []specs.Hook{{Path: "/x", Timeout: &zero}}}, errdefs.IsInvalidArgument, "hooks.poststart[0].timeout is 0"},
	} {
		err := hook.Check(&specs.Spec{Hooks: &test.hooks})
		switch {
		case test.is == nil && err != nil, test.is != nil && (err == nil || !test.is(err) || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := hook.Check(&specs.Spec{}); err != nil || hook.Any(&specs.Spec{}) {
		t.Errorf("no hooks: %v", err)
	}
}
