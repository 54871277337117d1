package task_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/shim/task"
)

// One implementation serves both names.
func TestBothVersions(t *testing.T) {
	s := newShim(t, nil)
	s.run(t, sandboxID)
	for _, name := range []string{"containerd.task.v2.Task", "containerd.task.v3.Task"} {
		var state taskapi.StateResponse
		if err := s.client.Call(t.Context(), name, "State", &taskapi.StateRequest{ID: sandboxID}, &state); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if state.ID != sandboxID || state.Status != tasktypes.Status_RUNNING {
			t.Errorf("%s: %v", name, &state)
		}
		err := s.client.Call(t.Context(), name, "State", &taskapi.StateRequest{ID: "none"}, &state)
		wantError(t, name, err, errdefs.IsNotFound, "none")
	}
}

// A container's whole life, with an exec, as an engine sees it.
func TestLife(t *testing.T) {
	s, ctx := newShim(t, nil), t.Context()
	select {
	case <-s.service.Used():
		t.Error("the service was used before the first Create")
	default:
	}
	created := s.create(t, sandboxID)
	<-s.service.Used()
	connected, err := s.Connect(ctx, &taskapi.ConnectRequest{ID: sandboxID})
	if err != nil || connected.TaskPid != created.Pid || connected.ShimPid != uint32(os.Getpid()) || created.Pid == 0 {
		t.Errorf("connected to %v, %v; created %v", connected, err, created)
	}
	s.wantStatus(t, "", tasktypes.Status_CREATED)
	if started, err := s.Start(ctx, &taskapi.StartRequest{ID: sandboxID}); err != nil || started.Pid != created.Pid {
		t.Errorf("started %v, %v", started, err)
	}
	s.wantStatus(t, "", tasktypes.Status_RUNNING)
	if _, err := s.Exec(ctx, &taskapi.ExecProcessRequest{ID: sandboxID, ExecID: "e1", Spec: &anypb.Any{Value: []byte("{}")}}); err != nil {
		t.Fatal(err)
	}
	s.wantStatus(t, "e1", tasktypes.Status_CREATED)
	if _, err := s.Start(ctx, &taskapi.StartRequest{ID: sandboxID, ExecID: "e1"}); err != nil {
		t.Fatal(err)
	}
	if pids, err := s.Pids(ctx, &taskapi.PidsRequest{ID: sandboxID}); err != nil || len(pids.Processes) != 2 || pids.Processes[0].Pid != created.Pid || pids.Processes[1].Pid < 1<<22 {
		t.Errorf("processes %v, %v", pids, err)
	}
	if _, err := s.ResizePty(ctx, &taskapi.ResizePtyRequest{ID: sandboxID, ExecID: "e1", Width: 80, Height: 25}); err != nil {
		t.Error(err)
	}
	if _, err := s.CloseIO(ctx, &taskapi.CloseIORequest{ID: sandboxID, ExecID: "e1", Stdin: true}); err != nil {
		t.Error(err)
	}
	s.exit(t, sandboxID, "e1", 4)
	s.events.await(t, "exit pod/e1=4")
	if gone, err := s.Delete(ctx, &taskapi.DeleteRequest{ID: sandboxID, ExecID: "e1"}); err != nil || gone.ExitStatus != 4 {
		t.Errorf("deleted %v, %v", gone, err)
	}
	if _, err := s.Shutdown(ctx, &taskapi.ShutdownRequest{}); err != nil || s.exits.Load() != 0 {
		t.Errorf("the shim ends with a container in it: %v", err)
	}
	if _, err := s.Kill(ctx, &taskapi.KillRequest{ID: sandboxID, Signal: 15}); err != nil {
		t.Error(err)
	}
	waited, err := s.Wait(ctx, &taskapi.WaitRequest{ID: sandboxID})
	if err != nil || waited.ExitStatus != 143 || !waited.ExitedAt.IsValid() {
		t.Errorf("waited %v, %v", waited, err)
	}
	s.wantStatus(t, "", tasktypes.Status_STOPPED)
	if pids, err := s.Pids(ctx, &taskapi.PidsRequest{ID: sandboxID}); err != nil || len(pids.Processes) != 1 || pids.Processes[0].Pid != created.Pid {
		t.Errorf("processes of what has ended: %v, %v", pids, err)
	}
	gone, err := s.Delete(ctx, &taskapi.DeleteRequest{ID: sandboxID})
	if err != nil || gone.ExitStatus != 143 || gone.Pid != created.Pid || !gone.ExitedAt.AsTime().Equal(waited.ExitedAt.AsTime()) {
		t.Errorf("deleted %v, %v", gone, err)
	}
	if _, err := s.Shutdown(ctx, &taskapi.ShutdownRequest{}); err != nil || s.exits.Load() != 1 {
		t.Errorf("the shim does not end: %v", err)
	}
	want := []string{
		"create pod", "start pod", "exec-added pod/e1", "exec-started pod/e1", "exit pod/e1=4", "exit pod=143", "delete pod=143",
	}
	if diff := cmp.Diff(want, s.events.list()); diff != "" {
		t.Errorf("events: %s", diff)
	}
}

// An engine that calls Delete again during its first call gets the same answer,
// and there is one event.
func TestDeleteTwiceAtOnce(t *testing.T) {
	s := newShim(t, nil)
	s.run(t, sandboxID)
	s.run(t, "c1")
	s.exit(t, "c1", "", 3)
	s.events.await(t, "exit c1=3")
	deleting, goOn := make(chan struct{}), make(chan struct{})
	s.host.Agent.Hook("Delete", func(context.Context, proto.Message) error {
		close(deleting)
		<-goOn
		return nil
	})
	var calls sync.WaitGroup
	remove := func() {
		if gone, err := s.Delete(t.Context(), &taskapi.DeleteRequest{ID: "c1"}); err != nil || gone.ExitStatus != 3 {
			t.Errorf("deleted %v, %v", gone, err)
		}
	}
	calls.Go(remove)
	<-deleting
	calls.Go(remove)
	time.Sleep(time.Second) // nothing tells that the second call has arrived
	close(goOn)
	calls.Wait()
	if all := s.events.list(); slices.Index(all, "delete c1=3") != len(all)-1 {
		t.Errorf("events %v", all)
	}
}

func (s *shim) wantStatus(t *testing.T, execID string, want tasktypes.Status) {
	t.Helper()
	state, err := s.State(t.Context(), &taskapi.StateRequest{ID: sandboxID, ExecID: execID})
	if err != nil {
		t.Fatal(err)
	}
	stopped := want == tasktypes.Status_STOPPED
	noPID := execID != "" && want == tasktypes.Status_CREATED
	if state.Status != want || state.ExecID != execID || noPID != (state.Pid == 0) || state.Bundle == "" || stopped != state.ExitedAt.IsValid() {
		t.Errorf("state %v, want %s", state, want)
	}
}

func TestPod(t *testing.T) {
	s := newShim(t, nil)
	_, err := s.Create(t.Context(), s.request(t, "c1"))
	wantError(t, "a service container without its sandbox", err, errdefs.IsNotFound, "no container yet")
	s.run(t, sandboxID)
	s.run(t, "c1")
	s.host.Agent.OOM("c1")
	s.events.await(t, "oom c1")
	s.exit(t, "c1", "", 3)
	s.events.await(t, "exit c1=3")
	if gone, err := s.Delete(t.Context(), &taskapi.DeleteRequest{ID: "c1"}); err != nil || gone.ExitStatus != 3 {
		t.Errorf("deleted %v, %v", gone, err)
	}
	s.run(t, "c2")
	s.exit(t, sandboxID, "", 0)
	s.events.await(t, "exit c2=137")
	s.events.await(t, "exit pod=0")
}

func TestStdio(t *testing.T) {
	s := newShim(t, nil)
	r := s.request(t, sandboxID)
	r.Stdout = "file://" + filepath.Join(s.host.RunDir, "stdout")
	if _, err := s.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(t.Context(), &taskapi.StartRequest{ID: sandboxID}); err != nil {
		t.Fatal(err)
	}
	state, err := s.State(t.Context(), &taskapi.StateRequest{ID: sandboxID})
	if err != nil || state.Stdout != r.Stdout {
		t.Errorf("state %v, %v", state, err)
	}
	if err := s.host.Agent.Write(sandboxID, "", "hello"); err != nil {
		t.Fatal(err)
	}
	s.exit(t, sandboxID, "", 0)
	s.events.await(t, "exit pod=0")
	if got, err := os.ReadFile(filepath.Join(s.host.RunDir, "stdout")); string(got) != "hello" || err != nil {
		t.Errorf("output %q, %v", got, err)
	}
}

func TestPauseAndResume(t *testing.T) {
	s, ctx := newShim(t, nil), t.Context()
	s.run(t, sandboxID)
	if _, err := s.Pause(ctx, &taskapi.PauseRequest{ID: sandboxID}); err != nil {
		t.Fatal(err)
	}
	s.wantStatus(t, "", tasktypes.Status_PAUSED)
	_, err := s.Pause(ctx, &taskapi.PauseRequest{ID: sandboxID})
	wantError(t, "pause again", err, errdefs.IsFailedPrecondition, "paused")
	if _, err := s.Resume(ctx, &taskapi.ResumeRequest{ID: sandboxID}); err != nil {
		t.Fatal(err)
	}
	s.wantStatus(t, "", tasktypes.Status_RUNNING)
	if diff := cmp.Diff([]string{"create pod", "start pod", "paused pod", "resumed pod"}, s.events.list()); diff != "" {
		t.Errorf("events: %s", diff)
	}
}

func TestUpdate(t *testing.T) {
	s := newShim(t, nil)
	s.run(t, sandboxID)
	r := &taskapi.UpdateTaskRequest{ID: sandboxID, Resources: &anypb.Any{TypeUrl: "other"}}
	_, err := s.Update(t.Context(), r)
	wantError(t, "resources of another type", err, errdefs.IsInvalidArgument, `type "other"`)
	r.Resources.TypeUrl = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources"
	if _, err := s.Update(t.Context(), r); err != nil {
		t.Error(err)
	}
}

// Every call about something that does not exist says so, by the error's kind.
func TestNotFound(t *testing.T) {
	s, ctx := newShim(t, nil), t.Context()
	calls := map[string]func(id, execID string) error{
		"State": func(id, e string) error { _, err := s.State(ctx, &taskapi.StateRequest{ID: id, ExecID: e}); return err },
		"Start": func(id, e string) error { _, err := s.Start(ctx, &taskapi.StartRequest{ID: id, ExecID: e}); return err },
		"Delete": func(id, e string) error {
			_, err := s.Delete(ctx, &taskapi.DeleteRequest{ID: id, ExecID: e})
			return err
		},
		"Kill": func(id, e string) error {
			_, err := s.Kill(ctx, &taskapi.KillRequest{ID: id, ExecID: e, Signal: 9})
			return err
		},
		"Wait": func(id, e string) error { _, err := s.Wait(ctx, &taskapi.WaitRequest{ID: id, ExecID: e}); return err },
		"ResizePty": func(id, e string) error {
			_, err := s.ResizePty(ctx, &taskapi.ResizePtyRequest{ID: id, ExecID: e})
			return err
		},
		"CloseIO": func(id, e string) error {
			_, err := s.CloseIO(ctx, &taskapi.CloseIORequest{ID: id, ExecID: e, Stdin: true})
			return err
		},
	}
	containerCalls := map[string]func(id string) error{
		"Pids": func(id string) error { _, err := s.Pids(ctx, &taskapi.PidsRequest{ID: id}); return err },
		"Exec": func(id string) error {
			_, err := s.Exec(ctx, &taskapi.ExecProcessRequest{ID: id, ExecID: "e"})
			return err
		},
		"Pause":  func(id string) error { _, err := s.Pause(ctx, &taskapi.PauseRequest{ID: id}); return err },
		"Resume": func(id string) error { _, err := s.Resume(ctx, &taskapi.ResumeRequest{ID: id}); return err },
		"Update": func(id string) error { _, err := s.Update(ctx, &taskapi.UpdateTaskRequest{ID: id}); return err },
		"Stats":  func(id string) error { _, err := s.Stats(ctx, &taskapi.StatsRequest{ID: id}); return err },
		"Checkpoint": func(id string) error {
			_, err := s.Checkpoint(ctx, &taskapi.CheckpointTaskRequest{ID: id})
			return err
		},
	}
	check := func(id, execID string) {
		for name, call := range calls {
			wantError(t, name+" "+id+"/"+execID, call(id, execID), errdefs.IsNotFound, id)
		}
	}
	check("pod", "") // before anything was created
	// An engine that found a shim asks for its sandbox: it gets the shim's pid.
	if connected, err := s.Connect(ctx, &taskapi.ConnectRequest{ID: "none"}); err != nil || connected.ShimPid == 0 || connected.TaskPid != 0 {
		t.Errorf("connected to %v, %v", connected, err)
	}
	s.run(t, sandboxID)
	check("none", "")
	check("pod", "none")
	for name, call := range containerCalls {
		wantError(t, name, call("none"), errdefs.IsNotFound, "none")
	}
}

func TestErrorKinds(t *testing.T) {
	s, ctx := newShim(t, nil), t.Context()
	s.run(t, sandboxID)
	_, err := s.Create(ctx, s.request(t, sandboxID))
	wantError(t, "the sandbox again", err, errdefs.IsAlreadyExists, "pod")
	s.create(t, "c1")
	_, err = s.Create(ctx, s.request(t, "c1"))
	wantError(t, "a container again", err, errdefs.IsAlreadyExists, "c1")
	_, err = s.Start(ctx, &taskapi.StartRequest{ID: sandboxID})
	wantError(t, "start again", err, errdefs.IsFailedPrecondition, "pod")
	_, err = s.Delete(ctx, &taskapi.DeleteRequest{ID: sandboxID})
	wantError(t, "delete while running", err, errdefs.IsFailedPrecondition, "pod")
	_, err = s.Exec(ctx, &taskapi.ExecProcessRequest{ID: sandboxID, ExecID: "../e"})
	wantError(t, "bad exec id", err, errdefs.IsInvalidArgument, "../e")
	_, err = s.Exec(ctx, &taskapi.ExecProcessRequest{ID: sandboxID, ExecID: "e", Stdout: "https://host/x"})
	wantError(t, "stdio of another scheme", err, errdefs.IsInvalidArgument, "https")
	_, err = s.Checkpoint(ctx, &taskapi.CheckpointTaskRequest{ID: sandboxID})
	wantError(t, "checkpoint of one in a pod", err, errdefs.IsFailedPrecondition, "one of a pod's containers")
	s.host.Agent.Fail("Stats", errInjected)
	_, err = s.Stats(ctx, &taskapi.StatsRequest{ID: sandboxID})
	wantError(t, "stats", err, errdefs.IsUnknown, "injected")
}

func TestShutdown(t *testing.T) {
	s := newShim(t, nil)
	if _, err := s.Shutdown(t.Context(), &taskapi.ShutdownRequest{}); err != nil || s.exits.Load() != 1 {
		t.Errorf("an empty shim does not end: %v", err)
	}
	s.run(t, sandboxID)
	if _, err := s.Shutdown(t.Context(), &taskapi.ShutdownRequest{Now: true}); err != nil || s.exits.Load() != 2 {
		t.Errorf("a shim does not end now: %v", err)
	}
}

// Stop waits for a boot in progress, so that nothing of it is left.
func TestStopDuringBoot(t *testing.T) {
	s := newShim(t, nil)
	release := make(chan struct{})
	booting := make(chan struct{})
	s.host.Agent.Hook("SetupSandbox", hold(booting, release))
	created := make(chan error, 1)
	r := s.request(t, sandboxID)
	go func() {
		_, err := s.Create(context.Background(), r)
		created <- err
	}()
	<-booting
	_, err := s.Create(t.Context(), s.request(t, sandboxID))
	wantError(t, "a second sandbox", err, errdefs.IsAlreadyExists, "pod")
	if _, err := s.Shutdown(t.Context(), &taskapi.ShutdownRequest{}); err != nil || s.exits.Load() != 0 {
		t.Errorf("a shim that boots a sandbox ends: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInjected)
	if err := s.service.Stop(ctx); err == nil || !strings.Contains(err.Error(), "injected") {
		t.Errorf("a Stop that gave up: %v", err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- s.service.Stop(context.Background()) }()
	close(release)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	<-created // with or without an error: the sandbox was stopped meanwhile
}

// iSulad before v2.1.3 does not wait: it reads the status from a FIFO.
func TestExitFIFO(t *testing.T) {
	dir := t.TempDir()
	s := newShim(t, func(o *task.Options) { o.Namespace, o.ExitFIFODir = "isula", dir })
	s.run(t, sandboxID)
	s.run(t, "c1")
	read := make(map[string]chan []byte)
	for _, id := range []string{sandboxID, "c1"} {
		read[id] = readFIFO(t, filepath.Join(dir, id, "exit_fifo"))
	}
	s.exit(t, "c1", "", 5)
	if waited, err := s.Wait(t.Context(), &taskapi.WaitRequest{ID: "c1"}); err != nil || waited.ExitStatus != 5 {
		t.Errorf("waited %v, %v", waited, err)
	}
	s.exit(t, sandboxID, "", 7)
	if got := <-read[sandboxID]; string(got) != "\x07\x00\x00\x00" {
		t.Errorf("the FIFO gave %q", got)
	}
	select {
	case got := <-read["c1"]:
		t.Errorf("an engine that waits was told %q too", got)
	default:
	}
}
