package container

import (
	"testing"
	"time"

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

// isKilled checks that a process of a container is killed.
func isKilled(t *testing.T, m *Manager, execID string) {
	t.Helper()
	shim, err := client.Connect(t.Context(), m.Store.ContainerDir("c"))
	if err != nil {
		t.Fatal(err)
	}
	defer shim.Close()
	ended := make(chan *task.WaitResponse, 1)
	go func() {
		resp, err := shim.Wait(t.Context(), &task.WaitRequest{ID: "c", ExecID: execID})
		if err != nil {
			t.Error(err)
		}
		ended <- resp
	}()
	select {
	case resp := <-ended:
		if resp.GetExitStatus() != 137 {
			t.Errorf("it ended with %d", resp.GetExitStatus())
		}
	case <-time.After(patience):
		t.Error("it runs on without an owner")
		_ = shim.Close()
		<-ended
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
		dies(t, c.shim, waits, 1)
		isKilled(t, m, "")
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
	dies(t, e.shim, waits, 2) // the first is the container's
	isKilled(t, m, e.id)
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
