package guesttest

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// A container that is created and not started yet behaves the same by both ways,
// and leaves nothing.
func TestGuestInitWaitsAsByStage(t *testing.T) {
	m := guestOnly(t)
	m.useStage(t)
	tests := map[string]struct {
		// do uses the created container, deletes it and returns what it saw.
		do   func(t *testing.T, id string) string
		want string // part of it
	}{
		"kill": {m.killed(unix.SIGKILL), "exit 137"},
		// The default action of SIGTERM does not end PID 1 of a namespace
		// (pid_namespaces(7)); the stage's Go runtime then exits with 2.
		"terminate":        {m.killed(unix.SIGTERM), "exit 2"},
		"kill all":         {m.killedAll, "exit 137"},
		"exec":             {m.execThenStart, "ran as 0\n/dev/null\n/proc/1\n, then \"started\\n\""},
		"state":            {m.stateThenKill, "CREATED, 1 process, pause: rpc error"},
		"start after kill": {m.killThenStart, "exit 137, start: rpc error"},
		"delete":           {m.deleted, "delete: 137, <nil>"},
		"program vanishes": {m.removeThenStart, "exit 255"},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		test := tests[name]
		t.Run(name, func(t *testing.T) {
			own := m.waits(t, "waits-own", func(*specs.Process) {}, test.do)
			stage := m.waits(t, "waits-stage", byStage, test.do)
			if diff := cmp.Diff(stage, own); diff != "" || !strings.Contains(own, test.want) {
				t.Errorf("-by stage +own: %s\ngot %q, want %q", diff, own, test.want)
			}
		})
	}
}

// waits creates a container and returns what do saw of it. do deletes it.
func (m *machine) waits(t *testing.T, id string, by func(*specs.Process), do func(t *testing.T, id string) string) string {
	t.Helper()
	defer freshRoot(t)()
	before := inventory(t)
	spec := initSpec("echo started")
	spec.Process.Args = []string{"/tmp/program"}
	if err := os.WriteFile(initRoot+"/tmp/program", []byte("#!/bin/sh\necho started\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	by(spec.Process)
	words := newStartWords(t, id)
	if err := m.create(t, id, &api.ContainerConfig{Spec: words.fill(t, spec)}); err != nil {
		t.Fatal(err)
	}
	text := do(t, id)
	m.forget(id)
	m.leavesOnly(t, before)
	return words.replace(text)
}

// kill sends a signal to a created container.
func (m *machine) kill(t *testing.T, req *taskapi.KillRequest) {
	t.Helper()
	if _, err := m.task.Kill(t.Context(), req); err != nil {
		t.Errorf("kill: %v", err)
	}
}

// ended waits for a container's exit and deletes it.
func (m *machine) ended(t *testing.T, id string) string {
	t.Helper()
	status := m.exit(t, id, "").GetStatus()
	if resp, err := m.task.Delete(t.Context(), &taskapi.DeleteRequest{ID: id}); err != nil || resp.GetExitStatus() != status {
		t.Errorf("delete: %v, %v, want status %d", resp, err, status)
	}
	return fmt.Sprint("exit ", status)
}

func (m *machine) killed(signal unix.Signal) func(*testing.T, string) string {
	return func(t *testing.T, id string) string {
		t.Helper()
		m.kill(t, &taskapi.KillRequest{ID: id, Signal: uint32(signal)})
		return m.ended(t, id)
	}
}

func (m *machine) killedAll(t *testing.T, id string) string {
	t.Helper()
	m.kill(t, &taskapi.KillRequest{ID: id, Signal: uint32(unix.SIGKILL), All: true})
	return m.ended(t, id)
}

func (m *machine) execThenStart(t *testing.T, id string) string {
	t.Helper()
	r := m.exec(t, id, "early", process("echo ran as $(id -u); ls -d /proc/1 /dev/null"))
	return fmt.Sprintf("%s%s, then %s", r.out, r.errs, m.startOutcome(t, id))
}

func (m *machine) stateThenKill(t *testing.T, id string) string {
	t.Helper()
	state, err := m.task.State(t.Context(), &taskapi.StateRequest{ID: id})
	if err != nil {
		t.Errorf("state: %v", err)
	}
	pids, err := m.task.Pids(t.Context(), &taskapi.PidsRequest{ID: id})
	if err != nil {
		t.Errorf("list processes: %v", err)
	}
	_, err = m.task.Pause(t.Context(), &taskapi.PauseRequest{ID: id})
	seen := fmt.Sprintf("%v, %d process, pause: %v, ", state.GetStatus(), len(pids.GetProcesses()), err)
	return seen + m.killed(unix.SIGKILL)(t, id)
}

func (m *machine) killThenStart(t *testing.T, id string) string {
	t.Helper()
	out, errs := m.output(t, id, "", api.Stream_STREAM_STDOUT), m.output(t, id, "", api.Stream_STREAM_STDERR)
	m.kill(t, &taskapi.KillRequest{ID: id, Signal: uint32(unix.SIGKILL)})
	status := m.exit(t, id, "").GetStatus()
	_, err := m.task.Start(t.Context(), &taskapi.StartRequest{ID: id})
	text := fmt.Sprintf("exit %d, start: %v, %s", status, err, m.ended(t, id))
	return text + <-out + <-errs
}

// deleted deletes a container, which ends it.
func (m *machine) deleted(t *testing.T, id string) string {
	t.Helper()
	resp, err := m.task.Delete(t.Context(), &taskapi.DeleteRequest{ID: id})
	m.exit(t, id, "") // or the next container of that id would have it
	return fmt.Sprintf("delete: %d, %v", resp.GetExitStatus(), err)
}

func (m *machine) removeThenStart(t *testing.T, id string) string {
	t.Helper()
	if err := os.Remove(initRoot + "/tmp/program"); err != nil {
		t.Error(err)
	}
	return m.startOutcome(t, id)
}
