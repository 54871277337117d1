package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"

	"github.com/katabox/katabox/agent/api"
)

// dialPod serves a pod on a socket, as the agent does on vsock.
func dialPod(t *testing.T, pod *Pod) *ttrpc.Client {
	t.Helper()
	return dialMachine(t, pod, func() error { return errors.New("stays on") })
}

// dialMachine is dialPod for a machine that powerOff ends.
func dialMachine(t *testing.T, pod *Pod, powerOff func() error) *ttrpc.Client {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "rpc"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	times := BootTimes{Agent: time.Second, Serving: 2 * time.Second}
	go func() { done <- Serve(ctx, l, pod, times, powerOff) }()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client := ttrpc.NewClient(conn)
	t.Cleanup(func() {
		_ = client.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return client
}

// An error that is not UTF-8 fails its call only: not the connection with all others.
func TestErrorsOfAnyBytes(t *testing.T) {
	pod, _ := testPod(t)
	failure := fmt.Errorf("open a\xffb: %w", errdefs.ErrNotFound)
	guest := api.NewGuestClient(dialMachine(t, pod, func() error { return failure }))
	_, err := guest.PowerOff(t.Context(), &api.PowerOffRequest{})
	if err = errgrpc.ToNative(err); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "open a?b") {
		t.Errorf("power off: %v", err)
	}
	if _, err := guest.Hello(t.Context(), &api.HelloRequest{ProtocolVersion: api.ProtocolVersion}); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestHelloAndPowerOff(t *testing.T) {
	pod, _ := testPod(t)
	guest := api.NewGuestClient(dialPod(t, pod))
	hello, err := guest.Hello(t.Context(), &api.HelloRequest{ProtocolVersion: api.ProtocolVersion})
	if err != nil {
		t.Fatal(err)
	}
	if hello.GetProtocolVersion() != api.ProtocolVersion || hello.GetBootToAgentUs() != 1e6 || hello.GetBootToServingUs() != 2e6 ||
		hello.GetAgentRss() == 0 || hello.GetKernelRelease() == "" || hello.GetAgentVersion() == "" {
		t.Errorf("%v", hello)
	}
	if _, err := guest.PowerOff(t.Context(), &api.PowerOffRequest{}); err == nil || !strings.Contains(err.Error(), "stays on") {
		t.Errorf("power off: %v", err)
	}
}

func TestErrorsCrossTheWire(t *testing.T) {
	pod, _ := testPod(t)
	task := taskapi.NewTTRPCTaskClient(dialPod(t, pod))
	ctx := t.Context()
	if _, err := task.Create(ctx, createRequest(t, "c")); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		call func() error
		is   func(error) bool
	}{
		"not found":      {func() error { _, err := task.State(ctx, &taskapi.StateRequest{ID: "x"}); return err }, errdefs.IsNotFound},
		"already exists": {func() error { _, err := task.Create(ctx, createRequest(t, "c")); return err }, errdefs.IsAlreadyExists},
		"invalid":        {func() error { _, err := task.Create(ctx, createRequest(t, "/")); return err }, errdefs.IsInvalidArgument},
		"precondition":   {func() error { _, err := task.Pause(ctx, &taskapi.PauseRequest{ID: "c"}); return err }, errdefs.IsFailedPrecondition},
		"resize":         {func() error { _, err := task.ResizePty(ctx, &taskapi.ResizePtyRequest{ID: "c"}); return err }, errdefs.IsFailedPrecondition},
		"huge terminal": {func() error {
			_, err := task.ResizePty(ctx, &taskapi.ResizePtyRequest{ID: "c", Width: 1 << 16})
			return err
		}, errdefs.IsInvalidArgument},
		"bad update": {func() error { _, err := task.Update(ctx, &taskapi.UpdateTaskRequest{ID: "c"}); return err }, errdefs.IsInvalidArgument},
		"checkpoint": {func() error { _, err := task.Checkpoint(ctx, &taskapi.CheckpointTaskRequest{ID: "c"}); return err }, errdefs.IsNotImplemented},
		"shutdown":   {func() error { _, err := task.Shutdown(ctx, &taskapi.ShutdownRequest{}); return err }, errdefs.IsNotImplemented},
		"stats":      {func() error { _, err := task.Stats(ctx, &taskapi.StatsRequest{ID: "c"}); return err }, errdefs.IsNotImplemented},
	}
	for name, test := range tests {
		if err := errgrpc.ToNative(test.call()); !test.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStateAndEventsOverTheWire(t *testing.T) {
	pod, runtime := testPod(t)
	client := dialPod(t, pod)
	task, ctx := taskapi.NewTTRPCTaskClient(client), t.Context()
	events, err := api.NewGuestClient(client).Events(ctx, &api.EventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	startContainer(t, pod, "c")
	startExec(t, pod, "c", "e")
	pids, err := task.Pids(ctx, &taskapi.PidsRequest{ID: "c"})
	if err != nil || len(pids.GetProcesses()) != 2 || pids.GetProcesses()[0].GetInfo() == nil || pids.GetProcesses()[1].GetInfo() != nil {
		t.Errorf("pids %v, %v", pids, err)
	}
	runtime.last.init.exit(7)
	for _, want := range []string{"e", ""} {
		e, err := events.Recv()
		if err != nil || e.GetExit().GetExecId() != want {
			t.Fatalf("event %v, %v, want the exit of %q", e, err, want)
		}
	}
	exit, err := task.Wait(ctx, &taskapi.WaitRequest{ID: "c"})
	if err != nil || exit.GetExitStatus() != 7 {
		t.Errorf("wait %v, %v", exit, err)
	}
	state, err := task.State(ctx, &taskapi.StateRequest{ID: "c"})
	if err != nil || state.GetStatus() != tasktypes.Status_STOPPED || state.GetExitStatus() != 7 {
		t.Errorf("state %v, %v", state, err)
	}
}

func TestWaitEndsWithItsCaller(t *testing.T) {
	pod, _ := testPod(t)
	task := taskapi.NewTTRPCTaskClient(dialPod(t, pod))
	create(t, pod, "c")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := task.Wait(ctx, &taskapi.WaitRequest{ID: "c"}); err == nil {
		t.Error("a container that lives has an exit")
	}
}
