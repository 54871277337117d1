package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/guest"
)

// testPod returns a pod that is set up, without namespaces.
func testPod(t *testing.T) (*Pod, *fakeRuntime) {
	t.Helper()
	runtime := &fakeRuntime{}
	modules, err := guest.ReadModules(filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	pod := NewPod(Config{Runtime: runtime, Mounter: guest.NewMounter(modules), RunDir: t.TempDir()})
	pod.stage, pod.hostname = ready, "pod"
	pod.first = "elsewhere" // Prevents pinning the test's namespace.
	t.Cleanup(func() {
		for _, c := range runtime.all {
			_ = c.Kill()
		}
		pod.Wait()
	})
	return pod, runtime
}

func packed(t *testing.T, config *api.ContainerConfig) *anypb.Any {
	t.Helper()
	value, err := proto.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return &anypb.Any{TypeUrl: api.ContainerConfigTypeURL, Value: value}
}

func createRequest(t *testing.T, id string) *taskapi.CreateTaskRequest {
	t.Helper()
	return &taskapi.CreateTaskRequest{ID: id, Options: packed(t, &api.ContainerConfig{Spec: []byte("{}")})}
}

func create(t *testing.T, pod *Pod, id string) {
	t.Helper()
	if _, err := pod.create(t.Context(), createRequest(t, id)); err != nil {
		t.Fatal(err)
	}
}

func execRequest(t *testing.T, id, execID string) *taskapi.ExecProcessRequest {
	t.Helper()
	spec, err := json.Marshal(&specs.Process{Args: []string{"x"}, Cwd: "/"})
	if err != nil {
		t.Fatal(err)
	}
	return &taskapi.ExecProcessRequest{ID: id, ExecID: execID, Spec: &anypb.Any{Value: spec}}
}

func startContainer(t *testing.T, pod *Pod, id string) {
	t.Helper()
	create(t, pod, id)
	if _, err := pod.start(t.Context(), id, ""); err != nil {
		t.Fatal(err)
	}
}

func startExec(t *testing.T, pod *Pod, id, execID string) {
	t.Helper()
	if err := pod.addExec(execRequest(t, id, execID)); err != nil {
		t.Fatal(err)
	}
	if _, err := pod.start(t.Context(), id, execID); err != nil {
		t.Fatal(err)
	}
}

func wait(t *testing.T, pod *Pod, id, execID string) uint32 {
	t.Helper()
	_, proc, err := pod.process(id, execID)
	if err != nil {
		t.Fatal(err)
	}
	exit, err := proc.wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return exit.Status
}

// told lists the queued events, as text.
func told(pod *Pod) []string {
	var words []string
	for _, e := range pod.events.events {
		if x := e.GetExit(); x != nil {
			words = append(words, strings.TrimSuffix("exit "+x.GetContainerId()+" "+x.GetExecId(), " "))
		} else {
			words = append(words, "oom "+e.GetOom().GetContainerId())
		}
	}
	return words
}

func TestLife(t *testing.T) {
	pod, runtime := testPod(t)
	startContainer(t, pod, "c")
	startExec(t, pod, "c", "e")
	runtime.last.execs[0].exit(3)
	if status := wait(t, pod, "c", "e"); status != 3 {
		t.Errorf("exec: %d", status)
	}
	runtime.last.init.exit(42)
	if status := wait(t, pod, "c", ""); status != 42 {
		t.Errorf("init: %d", status)
	}
	for _, execID := range []string{"e", ""} {
		if _, err := pod.delete(t.Context(), "c", execID); err != nil {
			t.Errorf("delete %q: %v", execID, err)
		}
	}
	if _, err := pod.task("c"); !errdefs.IsNotFound(err) {
		t.Errorf("the container is still there: %v", err)
	}
	if diff := cmp.Diff([]string{"exit c e", "exit c"}, told(pod)); diff != "" {
		t.Error(diff)
	}
	create(t, pod, "c") // The id is free again.
}

func TestInitTakesItsExecsAlong(t *testing.T) {
	pod, runtime := testPod(t)
	startContainer(t, pod, "c")
	startExec(t, pod, "c", "e1")
	startExec(t, pod, "c", "e2")
	runtime.last.kills = 1
	runtime.last.init.exit(1)
	if status := wait(t, pod, "c", ""); status != 1 {
		t.Errorf("init: %d", status)
	}
	words := told(pod)
	if len(words) != 4 || words[0] != "oom c" || words[3] != "exit c" {
		t.Errorf("events %q, want the OOM kill first and the init's exit last", words)
	}
	if status := wait(t, pod, "c", "e1"); status != 137 {
		t.Errorf("exec: %d", status)
	}
}

// What an init leaves is killed, unless the kernel has done so: without execs
// nothing else can be in the cgroup.
func TestInitLeavesNothing(t *testing.T) {
	for _, test := range []struct {
		name  string
		alone bool
		exec  bool
		want  bool
	}{
		{"a shared PID namespace", false, false, true},
		{"its own PID namespace", true, false, false},
		{"its own PID namespace, and an exec that was not started", true, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod, runtime := testPod(t)
			startContainer(t, pod, "c")
			runtime.last.alone = test.alone
			if test.exec {
				if err := pod.addExec(execRequest(t, "c", "e")); err != nil {
					t.Fatal(err)
				}
			}
			runtime.last.init.exit(0)
			wait(t, pod, "c", "")
			if got := slices.Contains(runtime.last.calls, "kill"); got != test.want {
				t.Errorf("killed: %v, want %v", got, test.want)
			}
		})
	}
}

func TestCreateRefuses(t *testing.T) {
	pod, _ := testPod(t)
	create(t, pod, "taken")
	bad := func(change func(*taskapi.CreateTaskRequest)) *taskapi.CreateTaskRequest {
		req := createRequest(t, "new")
		change(req)
		return req
	}
	tests := []struct {
		name string
		req  *taskapi.CreateTaskRequest
		is   func(error) bool
	}{
		{"id taken", createRequest(t, "taken"), errdefs.IsAlreadyExists},
		{"no id", createRequest(t, ""), errdefs.IsInvalidArgument},
		{"path as id", createRequest(t, "../x"), errdefs.IsInvalidArgument},
		{"dot", createRequest(t, "."), errdefs.IsInvalidArgument},
		{"long id", createRequest(t, strings.Repeat("x", maxID+1)), errdefs.IsInvalidArgument},
		{"no options", bad(func(r *taskapi.CreateTaskRequest) { r.Options = nil }), errdefs.IsInvalidArgument},
		{"options that are none", bad(func(r *taskapi.CreateTaskRequest) { r.Options.Value = []byte{0xff} }), errdefs.IsInvalidArgument},
		{"spec that is none", bad(func(r *taskapi.CreateTaskRequest) {
			r.Options = packed(t, &api.ContainerConfig{Spec: []byte("{")})
		}), errdefs.IsInvalidArgument},
		{"storage elsewhere", bad(func(r *taskapi.CreateTaskRequest) {
			r.Options = packed(t, &api.ContainerConfig{Spec: []byte("{}"), Storages: []*api.Storage{{Driver: "tmpfs", Target: "/etc"}}})
		}), func(err error) bool { return err != nil }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := pod.create(t.Context(), test.req); !test.is(err) {
				t.Errorf("%v", err)
			}
		})
	}
	if len(pod.tasks) != 1 {
		t.Errorf("%d containers are left", len(pod.tasks))
	}
}

func TestCreateBeforeSetup(t *testing.T) {
	pod, _ := testPod(t)
	for _, at := range []stage{bare, preparing, settingUp} {
		pod.stage = at
		if _, err := pod.create(t.Context(), createRequest(t, "c")); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("at %d: %v", at, err)
		}
	}
}

func TestCreateFailureLeavesNothing(t *testing.T) {
	pod, runtime := testPod(t)
	runtime.createErr = errors.New("no such program")
	if _, err := pod.create(t.Context(), createRequest(t, "c")); err == nil || !strings.Contains(err.Error(), "no such program") {
		t.Error(err)
	}
	runtime.createErr = nil
	create(t, pod, "c")
	if len(told(pod)) != 0 {
		t.Error("a container that never was has an exit")
	}
}

func TestPlacement(t *testing.T) {
	pod, runtime := testPod(t)
	pod.first = ""
	req := createRequest(t, "c")
	req.Options = packed(t, &api.ContainerConfig{Spec: []byte("{}"), SharePidNamespace: true})
	if _, err := pod.create(t.Context(), req); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("joined the PID namespace of no container: %v", err)
	}
	pod.first, pod.pinned = "pause", []string{"pid"}
	user := createRequest(t, "u")
	user.Options = packed(t, &api.ContainerConfig{Spec: []byte("{}"), ShareUserNamespace: true})
	if _, err := pod.create(t.Context(), user); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("joined a user namespace that is not there: %v", err)
	}
	if _, err := pod.create(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	_ = runtime.last.Kill()
	pod.pinned = []string{"pid", "user"}
	if _, err := pod.create(t.Context(), user); err != nil || runtime.created[1].User != pod.nsPath("user") {
		t.Errorf("%+v: %v", runtime.created, err)
	}
	at := runtime.created[0]
	if at.User != "" || at.PID != pod.nsPath("pid") || at.IPC != pod.nsPath("ipc") || at.UTS != pod.nsPath("uts") || !at.HasHostname {
		t.Errorf("%+v", at)
	}
}

// A container joins the PID namespace of another one while that runs.
func TestPIDNamespaceOfAnother(t *testing.T) {
	pod, runtime := testPod(t)
	create(t, pod, "target")
	target := runtime.last
	join := func(id, of string) error {
		req := createRequest(t, id)
		req.Options = packed(t, &api.ContainerConfig{Spec: []byte("{}"), SharePidNamespace: true, PidNamespaceOf: of})
		_, err := pod.create(t.Context(), req)
		return err
	}
	if err := join("joins", "target"); err != nil {
		t.Fatal(err)
	}
	want, err := os.Stat(fmt.Sprintf("/proc/%d/ns/pid", target.init.Pid()))
	if err != nil || !os.SameFile(runtime.joined, want) {
		t.Errorf("it joined %v, want %v, %v", runtime.joined, want, err)
	}
	if err := join("lost", "absent"); !errdefs.IsNotFound(err) {
		t.Errorf("a container that is not there: %v", err)
	}
	target.init.exit(0)
	wait(t, pod, "target", "")
	if err := join("late", "target"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("one that has ended: %v", err)
	}
}

// A container with its own name is not given the pod's.
func TestOwnUTSNamespace(t *testing.T) {
	pod, runtime := testPod(t)
	req := createRequest(t, "c")
	req.Options = packed(t, &api.ContainerConfig{Spec: []byte("{}"), OwnUtsNamespace: true})
	if _, err := pod.create(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if at := runtime.created[0]; at.UTS != "" || at.HasHostname || at.IPC == "" {
		t.Errorf("%+v", at)
	}
}

func TestStartFailureEndsTheContainer(t *testing.T) {
	pod, runtime := testPod(t)
	create(t, pod, "c")
	runtime.last.startErr = errors.New("no")
	if _, err := pod.start(t.Context(), "c", ""); err == nil {
		t.Fatal("started")
	}
	if status := wait(t, pod, "c", ""); status != 137 {
		t.Errorf("status %d", status)
	}
}

func TestExecStartFailure(t *testing.T) {
	pod, runtime := testPod(t)
	startContainer(t, pod, "c")
	runtime.last.execErr = errors.New("no such program")
	if err := pod.addExec(execRequest(t, "c", "e")); err != nil {
		t.Fatal(err)
	}
	if _, err := pod.start(t.Context(), "c", "e"); err == nil {
		t.Fatal("started")
	}
	if len(told(pod)) != 0 {
		t.Errorf("told %q", told(pod))
	}
	if resp, err := pod.delete(t.Context(), "c", "e"); err != nil || resp.GetExitStatus() != failedStatus {
		t.Errorf("%v, %v", resp, err)
	}
}

func TestDeleteCreated(t *testing.T) {
	pod, runtime := testPod(t)
	create(t, pod, "c")
	resp, err := pod.delete(t.Context(), "c", "")
	if err != nil || resp.GetExitStatus() != 137 || time.Since(resp.GetExitedAt().AsTime()) > time.Minute {
		t.Errorf("%v, %v", resp, err)
	}
	if runtime.last.destroyed != 1 {
		t.Errorf("destroyed %d times", runtime.last.destroyed)
	}
}

func TestDeleteCanBeTriedAgain(t *testing.T) {
	pod, runtime := testPod(t)
	startContainer(t, pod, "c")
	runtime.last.init.exit(0)
	wait(t, pod, "c", "")
	runtime.last.destroyErr = errors.New("busy")
	if _, err := pod.delete(t.Context(), "c", ""); err == nil {
		t.Fatal("deleted")
	}
	runtime.last.destroyErr = nil
	if _, err := pod.delete(t.Context(), "c", ""); err != nil {
		t.Error(err)
	}
}

func TestWaitForWhatNeverStarts(t *testing.T) {
	pod, _ := testPod(t)
	startContainer(t, pod, "c")
	addExec(t, pod)
	_, proc, err := pod.process("c", "e")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pod.delete(t.Context(), "c", "e"); err != nil {
		t.Fatal(err)
	}
	if exit, err := proc.wait(t.Context()); err != nil || exit.Status != failedStatus {
		t.Errorf("%v, %v", exit, err)
	}
}

// The host deletes a container as soon as it gets the exit.
func TestDeleteAtTheNewsOfTheExit(t *testing.T) {
	pod, runtime := testPod(t)
	news := make(chan string, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- pod.events.stream(ctx, func(e *api.Event) error {
			news <- e.GetExit().GetContainerId()
			return nil
		})
	}()
	for range 300 {
		startContainer(t, pod, "c")
		runtime.last.init.exit(0)
		if _, err := pod.delete(t.Context(), <-news, ""); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
