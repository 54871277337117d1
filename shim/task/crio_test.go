package task_test

import (
	"os"
	"path/filepath"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/shim/task"
)

// CRI-O reads no events, and an error of a signal to a process that has ended makes its
// stop of a container fail. By signal 0 it asks whether the process runs. containerd wants
// the errors and no file.
func TestCRIO(t *testing.T) {
	for _, address := range []string{"", "/run/containerd/containerd.sock"} {
		s := newShim(t, func(o *task.Options) { o.Namespace, o.Address = "default", address })
		s.run(t, sandboxID)
		s.run(t, "c1")
		s.host.Agent.OOM("c1")
		s.events.await(t, "oom c1")
		state, err := s.State(t.Context(), &taskapi.StateRequest{ID: "c1"})
		if err != nil {
			t.Fatal(err)
		}
		s.exit(t, "c1", "", 137)
		s.events.await(t, "exit c1=137") // the file comes before
		if _, err := os.Stat(filepath.Join(state.Bundle, "oom")); (err == nil) != (address == "") {
			t.Errorf("address %q: the file that says out of memory: %v", address, err)
		}
		if _, err := s.Kill(t.Context(), &taskapi.KillRequest{ID: "c1", Signal: 15}); (err == nil) != (address == "") {
			t.Errorf("address %q: a signal to what has ended: %v", address, err)
		}
		_, err = s.Kill(t.Context(), &taskapi.KillRequest{ID: "c1"})
		wantError(t, "signal 0 to what has ended", err, errdefs.IsNotFound, "c1")
		_, err = s.Kill(t.Context(), &taskapi.KillRequest{ID: "c2", Signal: 15})
		wantError(t, "a signal to no container", err, errdefs.IsNotFound, "c2")
	}
}
