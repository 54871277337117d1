package task_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/shim/shimtest/files"
	"github.com/katabox/katabox/shim/task"
	"github.com/katabox/katabox/virtcontainers"
)

// An engine that never deletes an exec, such as iSulad, gets its exit even by a
// late Wait; some time later the exec is gone, here and in the guest.
func TestExecsAreForgotten(t *testing.T) {
	const kept = 500 * time.Millisecond
	s := newShim(t, func(o *task.Options) { o.KeepExecs = kept })
	ctx := t.Context()
	s.run(t, sandboxID)
	exec := &taskapi.ExecProcessRequest{ID: sandboxID, ExecID: "e1", Spec: &anypb.Any{Value: []byte("{}")}}
	if _, err := s.Exec(ctx, exec); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(ctx, &taskapi.StartRequest{ID: sandboxID, ExecID: "e1"}); err != nil {
		t.Fatal(err)
	}
	s.exit(t, sandboxID, "e1", 3)
	if exit, err := s.Wait(ctx, &taskapi.WaitRequest{ID: sandboxID, ExecID: "e1"}); err != nil || exit.ExitStatus != 3 {
		t.Errorf("exit %v, error %v", exit, err)
	}
	for deadline := time.Now().Add(patience); ; {
		_, err := s.State(ctx, &taskapi.StateRequest{ID: sandboxID, ExecID: "e1"})
		if errdefs.IsNotFound(errgrpc.ToNative(err)) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the exec is still known; error %v", err)
		}
		time.Sleep(kept / 10)
	}
	// The guest refuses an exec with an id that it still knows; it forgets the id
	// a moment later.
	for deadline := time.Now().Add(patience); ; time.Sleep(kept / 10) {
		_, err := s.Exec(ctx, exec)
		if err == nil {
			break
		}
		if !errdefs.IsAlreadyExists(errgrpc.ToNative(err)) || time.Now().After(deadline) {
			t.Fatalf("the same id again: %v", err)
		}
	}
}

// An exec that has the id of one that was deleted is another one: it is not forgotten
// in that one's place.
func TestExecOfTheSameIDIsKept(t *testing.T) {
	const kept = 2 * time.Second // longer than it takes to delete the exec
	s := newShim(t, func(o *task.Options) { o.KeepExecs = kept })
	ctx := t.Context()
	s.run(t, sandboxID)
	exec := &taskapi.ExecProcessRequest{ID: sandboxID, ExecID: "e1", Spec: &anypb.Any{Value: []byte("{}")}}
	start := &taskapi.StartRequest{ID: sandboxID, ExecID: "e1"}
	if _, err := s.Exec(ctx, exec); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(ctx, start); err != nil {
		t.Fatal(err)
	}
	s.exit(t, sandboxID, "e1", 0)
	if _, err := s.Wait(ctx, &taskapi.WaitRequest{ID: sandboxID, ExecID: "e1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Delete(ctx, &taskapi.DeleteRequest{ID: sandboxID, ExecID: "e1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Exec(ctx, exec); err != nil {
		t.Fatal(err)
	}
	time.Sleep(kept + kept/4)
	if _, err := s.Start(ctx, start); err != nil {
		t.Errorf("start of the second: %v", err)
	}
}

// A pod that hibernates sleeps on: its execs that ended before are forgotten once it is
// awake.
func TestForgottenExecsDoNotWake(t *testing.T) {
	const kept = 2 * time.Second // longer than it takes to have the pod sleep
	s := newShim(t, func(o *task.Options) { o.KeepExecs = kept })
	ctx := t.Context()
	pod := s.sleeper(t)
	if _, err := s.Exec(ctx, &taskapi.ExecProcessRequest{ID: sandboxID, ExecID: "e1", Spec: &anypb.Any{Value: []byte("{}")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(ctx, &taskapi.StartRequest{ID: sandboxID, ExecID: "e1"}); err != nil {
		t.Fatal(err)
	}
	s.exit(t, sandboxID, "e1", 0)
	if _, err := s.Wait(ctx, &taskapi.WaitRequest{ID: sandboxID, ExecID: "e1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := pod.Hibernate(ctx); err != nil {
		t.Fatal(err)
	}
	const forgotten = "Delete " + sandboxID + "/e1"
	if slices.Contains(s.host.Agent.Calls(), forgotten) {
		t.Fatal("the exec was forgotten before the pod slept: the test shows nothing")
	}
	time.Sleep(kept + kept/4)
	if pod.Describe().Hibernation == nil {
		t.Error("the pod was woken")
	}
	if err := pod.Wake(ctx); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); !slices.Contains(s.host.Agent.Calls(), forgotten); time.Sleep(kept / 10) {
		if time.Now().After(deadline) {
			t.Fatal("the guest still has the exec")
		}
	}
}

// sleeper runs the sandbox's container in a pod that can hibernate.
func (s *shim) sleeper(t *testing.T) *virtcontainers.Sandbox {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "kb") //nolint:usetesting // t.TempDir may be in memory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	files.Configure(t, fmt.Sprintf("[runtime]\nhibernate_path = %q\n", dir))
	s.run(t, sandboxID)
	if err := s.host.VM().SetMemory(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	pod, err := s.service.Current()
	if err != nil {
		t.Fatal(err)
	}
	return pod
}
