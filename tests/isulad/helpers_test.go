package isulad

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/tests/isulad/engine"
)

// testTimeout bounds one test: without KVM, and with other suites beside this
// one, a VM takes seconds to boot.
const testTimeout = 8 * time.Minute

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// seedPod is the first of the two commands that make a pod:
//
//	isula run -tid --runtime io.containerd.kata.v2 --network none
//	  --annotation io.kubernetes.docker.type=podsandbox pause cmd
func seedPod() engine.Config {
	return engine.Config{
		Image: pause, TTY: true, Args: []string{"/pause", "cmd"},
		Annotations: map[string]string{"io.kubernetes.docker.type": "podsandbox"},
	}
}

// seedApp is the second command: a container in the pod that sandbox names, in
// the form that a user typed.
func seedApp(sandbox string, args ...string) engine.Config {
	return engine.Config{
		Image: busybox, TTY: true, Args: args,
		Annotations: map[string]string{"io.kubernetes.docker.type": "container", "io.kubernetes.sandbox.id": sandbox},
	}
}

// app is a container in the pod, without a terminal.
func app(sandbox string, args ...string) engine.Config {
	cfg := seedApp(sandbox, args...)
	cfg.TTY = false
	return cfg
}

func script(text string) []string { return []string{"sh", "-c", text} }

// single is a container in its own VM: no annotation puts it in a pod.
func single(args ...string) engine.Config { return engine.Config{Image: busybox, Args: args} }

// create makes a container. At the test's end it is removed, and nothing of it
// may be left.
func create(t *testing.T, e *engine.Engine, cfg engine.Config) *engine.Container {
	t.Helper()
	c, err := e.Create(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, c) })
	return c
}

func remove(t *testing.T, c *engine.Container) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if t.Failed() {
		log, _ := os.ReadFile(c.LogPath())
		t.Logf("%.12s: calls %v\nshim's log: %s", c.ID, c.Calls(), log)
		logSharedPod(t, c)
	}
	if err := c.Remove(ctx, true); err != nil {
		t.Error(err)
	}
	if err := awaitClean(ctx, c); err != nil {
		t.Error(err)
		force(c)
	}
}

// logSharedPod logs what became of the pod that tests share, when one that is not
// its own container failed: the cause may lie with an earlier test.
func logSharedPod(t *testing.T, failed *engine.Container) {
	if bed.pod == nil || bed.pod == failed {
		return
	}
	log, _ := os.ReadFile(bed.pod.LogPath())
	t.Logf("the shared pod %.12s: calls %v\nits shim's log: %s", bed.pod.ID, bed.pod.Calls(), log)
}

// start creates a container and starts it; neither may fail.
func start(ctx context.Context, t *testing.T, cfg engine.Config, stdio engine.Stdio) *engine.Container {
	t.Helper()
	c := create(t, bed.engine, cfg)
	if err := c.Start(ctx, stdio); err != nil {
		t.Fatal(err)
	}
	return c
}

// sharedPod returns the id of a pod that all tests share; they must leave it
// running.
func sharedPod(ctx context.Context, t *testing.T) string {
	t.Helper()
	if bed.pod != nil {
		return bed.pod.ID
	}
	c, err := bed.engine.Create(seedPod())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx, engine.Detached); err != nil {
		log, _ := os.ReadFile(c.LogPath())
		t.Fatalf("%v\nshim's log: %s", err, log)
	}
	bed.pod = c
	return c.ID
}

// wantExit waits for the engine's own record of the exit.
func wantExit(ctx context.Context, t *testing.T, c *engine.Container, want int32) {
	t.Helper()
	code, err := c.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if code != want {
		t.Errorf("container %.12s exited with %d, want %d", c.ID, code, want)
	}
}

// wantCalls compares the calls made for a container, in their order.
func wantCalls(t *testing.T, c *engine.Container, want ...string) {
	t.Helper()
	var got []string
	deleted := false
	for _, call := range c.Calls() {
		// The shim exits at the first Shutdown after the last Delete, perhaps
		// before it has sent the answer, or before another container's Shutdown
		// has arrived. For iSulad both are only warnings.
		if call.Name == "Shutdown" && deleted && engine.Code(call.Err) == -1 {
			call.Err = nil
		}
		deleted = call.String() == "Delete"
		got = append(got, call.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls for container %.12s (-want +got):\n%s", c.ID, diff)
		for _, call := range c.Calls() {
			if call.Err != nil {
				t.Logf("%s: %v", call.Name, call.Err)
			}
		}
	}
}

// execOut runs a command in the container, which must succeed, and returns
// its stdout.
func execOut(ctx context.Context, t *testing.T, c *engine.Container, args ...string) string {
	t.Helper()
	code, console, err := c.Exec(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	if code != 0 {
		t.Errorf("exec %v: exit code %d, stderr %q", args, code, console.Err.String())
	}
	return console.Out.String()
}

// eventually polls holds until it returns true or limit has passed.
func eventually(ctx context.Context, limit time.Duration, holds func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !holds() {
		select {
		case <-ctx.Done():
			return holds()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return true
}
