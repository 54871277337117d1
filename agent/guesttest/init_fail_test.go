package guesttest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/api"
)

// initFailure is a container that cannot be created or started.
type initFailure struct {
	change func(*specs.Spec)
	// differs is why the two ways may come to different words or outcomes; both
	// must still leave nothing, and fail unless one mayRun.
	differs string
	mayRun  bool
}

// What fails does so with the same words, and leaves nothing: all of the
// containers of a way have the same id.
func TestGuestInitFailsAsByStage(t *testing.T) {
	m := guestOnly(t)
	m.useStage(t)
	failures := initFailures()
	for _, name := range drawn(t, slices.Sorted(maps.Keys(failures))) {
		f := failures[name]
		t.Run(name, func(t *testing.T) {
			own := m.fails(t, "fails-own", f.change, func(*specs.Process) {})
			stage := m.fails(t, "fails-stage", f.change, byStage)
			if diff := cmp.Diff(stage, own); diff != "" && f.differs == "" {
				t.Errorf("-by stage +own: %s", diff)
			}
			if ran := strings.HasSuffix(own, "exit 0") || strings.HasSuffix(stage, "exit 0"); ran && !f.mayRun {
				t.Errorf("did not fail: own: %s, by stage: %s", own, stage)
			}
		})
	}
	for _, id := range []string{"fails-own", "fails-stage"} {
		m.run(t, id, shell("true"))
		m.forget(id)
	}
}

// useStage runs a container by libcontainer's stage: it opens a procfs when it is first
// used, and keeps it.
func (m *machine) useStage(t *testing.T) {
	t.Helper()
	spec := shell("true")
	byStage(spec.Process)
	m.run(t, "uses-stage", spec)
	m.forget("uses-stage")
}

// fails returns the outcome of a container that must leave nothing.
func (m *machine) fails(t *testing.T, id string, change func(*specs.Spec), by func(*specs.Process)) string {
	t.Helper()
	defer freshRoot(t)()
	before := inventory(t)
	spec := initSpec("echo started")
	change(spec)
	by(spec.Process)
	words := newStartWords(t, id)
	text := m.outcome(t, id, words.fill(t, spec), spec.Process.Terminal)
	m.forget(id)
	m.leavesOnly(t, before)
	return descriptorName.ReplaceAllString(words.replace(text), "")
}

// outcome is why a container could not be created or started, or how it ended.
func (m *machine) outcome(t *testing.T, id string, spec []byte, terminal bool) string {
	t.Helper()
	req := &taskapi.CreateTaskRequest{ID: id, Terminal: terminal, Stdout: "y", Stderr: "y", Options: packedConfig(t, &api.ContainerConfig{Spec: spec})}
	if terminal {
		req.Stderr = ""
	}
	if _, err := m.task.Create(t.Context(), req); err != nil {
		if errdefs.IsAlreadyExists(errgrpc.ToNative(err)) {
			t.Errorf("the container before has left something: %v", err)
		}
		return "create: " + err.Error()
	}
	if terminal {
		t.Fatal("a container at a terminal was created")
	}
	return m.startOutcome(t, id)
}

// startOutcome is why a created container could not be started, and how it
// ended. It deletes the container.
func (m *machine) startOutcome(t *testing.T, id string) string {
	t.Helper()
	out, errs := m.output(t, id, "", api.Stream_STREAM_STDOUT), m.output(t, id, "", api.Stream_STREAM_STDERR)
	_, err := m.task.Start(t.Context(), &taskapi.StartRequest{ID: id})
	text := fmt.Sprintf("start: %v, exit %d", err, m.exit(t, id, "").GetStatus())
	text = fmt.Sprintf("%q, %q, %s", <-out, <-errs, text)
	if _, err := m.task.Delete(t.Context(), &taskapi.DeleteRequest{ID: id}); err != nil {
		t.Error(err)
	}
	return text
}

// leavesOnly waits until the guest has what it had before; the kernel frees some
// of it later.
func (m *machine) leavesOnly(t *testing.T, before string) {
	t.Helper()
	var after string
	for deadline := time.Now().Add(callTimeout / 3); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if after = inventory(t); after == before {
			return
		}
	}
	t.Errorf("left behind: -before +after: %s", cmp.Diff(before, after))
}

// inventory lists what a container could leave behind in the guest: leftovers, and
// the cgroups and processes by name.
func inventory(t *testing.T) string {
	t.Helper()
	list := []string{leftovers(t)}
	err := filepath.WalkDir("/sys/fs/cgroup/katabox", func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			list = append(list, path)
		}
		return nil // It may vanish while it is read.
	})
	if err != nil {
		t.Error(err)
	}
	programs, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, program := range programs {
		if path, err := os.Readlink(program); err == nil { // A thread of the kernel has none.
			list = append(list, filepath.Dir(program)+" "+path)
		}
	}
	return strings.Join(list, "\n")
}
