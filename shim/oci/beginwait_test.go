package oci

import (
	"context"
	"os"
	"testing"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/shim/client"
)

// A caller that has begun to wait is the process's owner: if it is killed at once, the
// process is killed.
func TestOwnerFromBeginWait(t *testing.T) {
	r := newRuntime(t)
	create(t, r, "c1", CreateOptions{Bundle: newBundle(t, nil)})
	if err := r.Start(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		shim, owner := connect(t, r, "c1"), connect(t, r, "c1")
		execID := "e1"
		if err := add(t.Context(), shim, "c1", execID, &specs.Process{Args: []string{"sleep", "1"}, Cwd: "/"}, new(client.Stdio)); err != nil {
			t.Fatal(err)
		}
		if err := startExec(t.Context(), shim, "c1", execID); err != nil {
			t.Fatal(err)
		}
		if _, err := owner.BeginWait(t.Context(), &task.WaitRequest{ID: "c1", ExecID: execID}); err != nil {
			t.Fatal(err)
		}
		if err := owner.Close(); err != nil {
			t.Fatal(err)
		}
		wantGone(t, shim, "c1", execID)
	}
	if err := r.Delete(t.Context(), "c1", true); err != nil {
		t.Error(err)
	}
}

// The answers of BeginWait are those of Wait.
func TestBeginWait(t *testing.T) {
	r := newRuntime(t)
	create(t, r, "c1", CreateOptions{Bundle: newBundle(t, nil)})
	shim := connect(t, r, "c1")
	ctx, cancel := context.WithCancelCause(t.Context())
	none, err := shim.BeginWait(t.Context(), &task.WaitRequest{ID: "none"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := none(); !errdefs.IsNotFound(err) {
		t.Errorf("without a container: %v", err)
	}
	answers := make([]func() (*task.WaitResponse, error), 2)
	for i, ctx := range []context.Context{ctx, t.Context()} {
		if answers[i], err = shim.BeginWait(ctx, &task.WaitRequest{ID: "c1"}); err != nil {
			t.Fatal(err)
		}
	}
	cancel(os.ErrDeadlineExceeded)
	if _, err := answers[0](); err == nil {
		t.Error("it waits on although its context has ended")
	}
	if err := r.Delete(t.Context(), "c1", true); err != nil {
		t.Error(err)
	}
	if resp, err := answers[1](); err != nil || resp.ExitStatus != 137 {
		t.Errorf("exit %v, %v; want 137", resp, err)
	}
	if _, err := shim.BeginWait(t.Context(), &task.WaitRequest{ID: "c1"}); !errdefs.IsUnavailable(err) {
		t.Errorf("after the shim's end: %v", err)
	}
}
