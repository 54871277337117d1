package sandbox_test

import (
	"context"
	"strings"
	"testing"
	"time"

	sandboxapi "github.com/containerd/containerd/api/runtime/sandbox/v1"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/shim/task"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// The sandbox ends when the machine dies.
func TestDeath(t *testing.T) {
	s := newShim(t)
	s.boot(t)
	waited := make(chan uint32, 1)
	go func() {
		resp, err := s.WaitSandbox(context.Background(), &sandboxapi.WaitSandboxRequest{SandboxID: id})
		if err != nil {
			t.Error(err)
		}
		waited <- resp.GetExitStatus()
	}()
	s.host.VM().Die(errInjected)
	if status := <-waited; status != 255 {
		t.Errorf("status %d", status)
	}
	if got := s.state(t); got != "SANDBOX_NOTREADY" {
		t.Errorf("state %s", got)
	}
}

// A teardown that could not undo everything is reported once. It keeps neither the pod
// nor its shim: containerd calls "delete", which removes what is left, only when a
// Shutdown has succeeded.
func TestStopFails(t *testing.T) {
	for _, first := range []string{"Stop", "Shutdown"} {
		t.Run(first, func(t *testing.T) { testStopFails(t, first == "Stop") })
	}
}

func testStopFails(t *testing.T, stopFirst bool) {
	s, ctx := newShim(t), t.Context()
	s.boot(t)
	s.stopFails = true
	s.host.Monitor.Fail("stop", errInjected)
	t.Cleanup(func() {
		s.host.VM().Die(errInjected)
		if err := persist.Remove(s.host.Platform().StateDir(), id); err != nil {
			t.Error(err)
		}
	})
	if stopFirst {
		_, err := s.StopSandbox(ctx, &sandboxapi.StopSandboxRequest{SandboxID: id})
		if err == nil || !strings.Contains(err.Error(), "injected") {
			t.Errorf("the stop that failed: %v", err)
		}
		if _, err := s.StopSandbox(ctx, &sandboxapi.StopSandboxRequest{SandboxID: id}); err != nil {
			t.Errorf("the stop of a stopped sandbox: %v", err)
		}
		if got := s.exits.Load(); got != 0 {
			t.Errorf("%d exits of the shim before the shutdown", got)
		}
	}
	if _, err := s.ShutdownSandbox(ctx, &sandboxapi.ShutdownSandboxRequest{SandboxID: id}); err != nil || s.exits.Load() != 1 {
		t.Errorf("the shutdown: %v, %d exits of the shim", err, s.exits.Load())
	}
}

// A shutdown whose context ends before the sandbox leaves the shim to the next one.
func TestShutdownEndsEarly(t *testing.T) {
	s := newShim(t)
	s.boot(t)
	s.run(t, "c1")
	held := make(chan struct{})
	s.host.Agent.Hook("Kill", func(context.Context, proto.Message) error { <-held; return nil })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.ShutdownSandbox(ctx, &sandboxapi.ShutdownSandboxRequest{SandboxID: id}); err == nil || s.exits.Load() != 0 {
		t.Errorf("the shutdown of a sandbox that has not ended: %v, %d exits of the shim", err, s.exits.Load())
	}
	close(held)
	if _, err := s.ShutdownSandbox(t.Context(), &sandboxapi.ShutdownSandboxRequest{SandboxID: id}); err != nil || s.exits.Load() != 1 {
		t.Errorf("the next shutdown: %v, %d exits of the shim", err, s.exits.Load())
	}
}

// A shim whose pod does not boot does not wait for its engine without end.
func TestAbandoned(t *testing.T) {
	s := newShimWith(t, func(o *task.Options) { o.AbandonAfter = time.Millisecond })
	s.host.Agent.Fail("SetupSandbox", errInjected)
	if _, err := s.CreateSandbox(t.Context(), &sandboxapi.CreateSandboxRequest{SandboxID: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.StartSandbox(t.Context(), &sandboxapi.StartSandboxRequest{SandboxID: id}); err == nil {
		t.Fatal("the sandbox runs")
	}
	for deadline := time.Now().Add(20 * time.Second); s.exits.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the shim does not end")
		}
	}
}
