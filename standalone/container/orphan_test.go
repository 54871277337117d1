package container

import (
	"context"
	"testing"

	"github.com/containerd/containerd/api/runtime/task/v3"

	"github.com/katabox/katabox/shim/client"
	"github.com/katabox/katabox/shim/shimtest"
	"github.com/katabox/katabox/standalone/spec"
)

// dies closes a connection as the end of this process would, once a number of waiters'
// calls have reached the shim.
func dies(t *testing.T, shim *client.Shim, waits shimtest.Waits, calls int) {
	t.Helper()
	waits.Await(t, calls)
	if err := shim.Close(); err != nil {
		t.Fatal(err)
	}
}

// watchEnd waits for a process of a container as another client, and returns a function
// that checks that it is killed. The shim has got the request: it may forget the process
// at once.
func watchEnd(t *testing.T, m *Manager, execID string) (isKilled func()) {
	t.Helper()
	shim, err := client.Connect(t.Context(), m.Store.ContainerDir("c"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	answer, err := shim.BeginWait(ctx, &task.WaitRequest{ID: "c", ExecID: execID})
	if err == nil {
		_, err = shim.State(ctx, &task.StateRequest{ID: "c", ExecID: execID})
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		defer shim.Close()
		defer cancel()
		if resp, err := answer(); err != nil || resp.ExitStatus != 137 {
			t.Errorf("it runs on without an owner, or has ended otherwise: %v, %v; want 137", resp, err)
		}
	}
}

// A run that is killed before it waits for its command leaves no machine that runs,
// whether the command was started or not.
func TestRunIsKilledBeforeItWaits(t *testing.T) {
	for _, started := range []bool{false, true} {
		m, img := newManager(t)
		waits := shimtest.CountWaits(t)
		o := Options{Name: "c", Network: NoNetwork, Spec: spec.Options{Args: []string{"sh"}}}
		c, err := m.Create(t.Context(), img, o, new(Stdio))
		if err == nil && started {
			err = c.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		isKilled := watchEnd(t, m, "")
		dies(t, c.shim, waits, 2) // the other is the watch
		isKilled()
		if c.shim, err = client.Connect(t.Context(), m.Store.ContainerDir("c")); err != nil { // to end it
			t.Fatal(err)
		}
		if err := c.unwind(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// The same holds for the command of an exec; the container runs on.
func TestExecIsKilledBeforeItWaits(t *testing.T) {
	m, img := newManager(t)
	waits := shimtest.CountWaits(t)
	stdio := new(Stdio)
	c := run(t, m, img, Options{Name: "c", Remove: true}, stdio)
	streams := new(Stdio)
	e, err := m.StartExec(t.Context(), "c", spec.Options{Args: []string{"sh"}}, streams)
	if err != nil {
		t.Fatal(err)
	}
	isKilled := watchEnd(t, m, e.exec)
	dies(t, e.shim, waits, 3) // the others are the container's and the watch
	isKilled()
	if _, err := e.Wait(t.Context(), streams); err == nil {
		t.Error("the exec whose connection has ended was waited for")
	}
	if err := c.Kill(t.Context(), 9); err != nil {
		t.Fatal(err)
	}
	if code, err := c.Wait(t.Context(), stdio); code != 137 || err != nil {
		t.Errorf("exit code %d, %v; want 137", code, err)
	}
}
