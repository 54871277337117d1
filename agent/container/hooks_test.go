package container

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// hookDir is a directory with hooks: their contents by "kind/name".
func hookDir(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFindHooks(t *testing.T) {
	dir := hookDir(t, map[string]string{
		"prestart/20-b": "", "prestart/10-a": "", "prestart/30-plain": "", "poststop/x": "", "createRuntime/y": "", "poststart/sub/z": "",
	})
	if err := os.Chmod(filepath.Join(dir, "prestart/30-plain"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("10-a", filepath.Join(dir, "prestart/40-link")); err != nil {
		t.Fatal(err)
	}
	got, err := findHooks(dir)
	want := Hooks{"prestart": {dir + "/prestart/10-a", dir + "/prestart/20-b"}, "poststop": {dir + "/poststop/x"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestFindHooksRefuses(t *testing.T) {
	dir := hookDir(t, map[string]string{"file": "", "odd/prestart": ""})
	if _, err := findHooks("hooks"); !errdefs.IsInvalidArgument(err) {
		t.Error(err)
	}
	for _, path := range []string{dir + "/nosuch", dir + "/file"} {
		if _, err := findHooks(path); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), path) {
			t.Error(err)
		}
	}
	if _, err := findHooks(dir + "/odd"); err == nil {
		t.Error("a file is taken for a folder")
	}
}

// counted counts the starts and ends of children.
type counted struct {
	mu            sync.Mutex
	began, waited int
}

func (c *counted) Begin() func(int) {
	return func(pid int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if pid > 0 {
			c.began++
		}
	}
}

func (c *counted) Done(int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waited++
}

// newRun is the hooks of a directory for a container called c1.
func newRun(t *testing.T, dir string) (*hookRun, *counted) {
	t.Helper()
	children := &counted{}
	r := &Runtime{StateDir: filepath.Join(t.TempDir(), "agent"), Children: children}
	if err := r.SetHooks(dir); err != nil {
		t.Fatal(err)
	}
	h, err := r.newHookRun("c1", &specs.Spec{Root: &specs.Root{Path: "/r"}}, map[string]string{"a": "b"})
	if err != nil {
		t.Fatal(err)
	}
	return h, children
}

// A hook gets the state on stdin and its kind as argument, finds the spec in the
// bundle, and sees nothing of the agent's environment.
func TestHookGetsTheState(t *testing.T) {
	t.Setenv("OF_THE_AGENT", "secret")
	out := t.TempDir()
	dir := hookDir(t, map[string]string{"poststart/x": "cat > " + out + "/state; echo $1 $OF_THE_AGENT $PWD > " + out + "/args"})
	h, children := newRun(t, dir)
	h.poststart(77)
	var state specs.State
	data, err := os.ReadFile(out + "/state")
	if err == nil {
		err = json.Unmarshal(data, &state)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := specs.State{
		Version: specs.Version, ID: "c1", Status: specs.StateRunning, Pid: 77, Bundle: h.state.Bundle, Annotations: map[string]string{"a": "b"},
	}
	if diff := cmp.Diff(want, state); diff != "" {
		t.Error(diff)
	}
	if args, err := os.ReadFile(out + "/args"); string(args) != "poststart /\n" || err != nil {
		t.Errorf("%q, %v", args, err)
	}
	if config, err := os.ReadFile(state.Bundle + "/config.json"); err != nil || !strings.Contains(string(config), `"path":"/r"`) {
		t.Errorf("%s, %v", config, err)
	}
	h.poststop()
	if _, err := os.Stat(state.Bundle); !os.IsNotExist(err) {
		t.Errorf("the bundle is still there: %v", err)
	}
	if children.began != 1 || children.waited != 1 {
		t.Errorf("%d hooks were started and %d waited for", children.began, children.waited)
	}
}

// A prestart hook that fails keeps those after it from running, and says why; the
// others' failures stop nothing.
func TestHookThatFails(t *testing.T) {
	out := t.TempDir()
	bad := "echo first >&2; head -c 5000 /dev/zero | tr '\\0' x >&2; echo; echo last words >&2; exit 3"
	dir := hookDir(t, map[string]string{
		"prestart/1": bad, "prestart/2": "touch " + out + "/prestart", "poststop/1": "exit 1", "poststop/2": "touch " + out + "/poststop",
	})
	h, _ := newRun(t, dir)
	err := h.forLibcontainer().Run("prestart", &specs.State{Pid: 1})
	if err == nil {
		t.Fatal("no error")
	}
	text := err.Error()
	if !strings.HasPrefix(text, "error running prestart hook #0: prestart hook "+dir+"/prestart/1: exit status 3: ") || !strings.HasSuffix(text, "last words") ||
		strings.Contains(text, "first") || len(text) > 3000 {
		t.Errorf("%.100s ... %d bytes", text, len(text))
	}
	h.poststop()
	if _, err := os.Stat(out + "/prestart"); err == nil {
		t.Error("the hook after one that failed was run")
	}
	if _, err := os.Stat(out + "/poststop"); err != nil {
		t.Error(err)
	}
}

func TestHookThatCannotBeStarted(t *testing.T) {
	dir := hookDir(t, map[string]string{"prestart/1": ""})
	if err := os.WriteFile(dir+"/prestart/1", []byte("#!/no/such/program\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	h, children := newRun(t, dir)
	err := h.run(dir+"/prestart/1", prestart, specs.StateCreating, 1)
	if err == nil || !strings.Contains(err.Error(), "prestart hook "+dir+"/prestart/1") || children.began != 0 {
		t.Errorf("%v, %d started", err, children.began)
	}
}

// A hook that does not end is killed with what it has started, and one that
// leaves a process behind is not waited for.
func TestHookThatHangs(t *testing.T) {
	left := filepath.Join(t.TempDir(), "pid")
	dir := hookDir(t, map[string]string{
		"prestart/slow": "echo waiting >&2; sleep 1000 & sleep 1000", "prestart/daemon": "sleep 1000 & echo $! > " + left,
	})
	h, _ := newRun(t, dir)
	h.timeout = 3 * time.Second // on a busy machine the shell needs a part of it to start
	err := h.run(dir+"/prestart/slow", prestart, specs.StateCreating, 1)
	if err == nil || !strings.Contains(err.Error(), "it did not end within 3s: waiting") {
		t.Errorf("%v", err)
	}
	h.timeout = hookTimeout
	if err := h.run(dir+"/prestart/daemon", prestart, specs.StateCreating, 1); err != nil {
		t.Error(err)
	}
	data, err := os.ReadFile(left)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err == nil {
		err = unix.Kill(pid, unix.SIGKILL)
	}
	if err != nil {
		t.Errorf("what the hook left behind: %v", err)
	}
}

func TestNoHooks(t *testing.T) {
	h, err := (&Runtime{StateDir: t.TempDir()}).newHookRun("c1", nil, nil)
	if h != nil || err != nil || h.forLibcontainer() != nil {
		t.Errorf("%+v, %v", h, err)
	}
	h.poststart(1)
	h.poststop()
}
