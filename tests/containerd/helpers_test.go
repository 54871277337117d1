package containerd

import (
	"context"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// newPod makes a pod that is removed when the test ends.
func newPod(ctx context.Context, t *testing.T, d *harness.Daemon) *harness.Pod {
	t.Helper()
	pod, err := d.NewPod(ctx, "pod")
	if err != nil {
		t.Fatalf("make pod: %v", err)
	}
	t.Cleanup(func() { removed(t, "pod", pod.Remove) })
	return pod
}

// removed calls a clean-up with its own timeout: long enough for a machine that
// is busy with ten others.
func removed(t *testing.T, what string, remove func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := remove(ctx); err != nil {
		t.Errorf("remove %s: %v", what, err)
	}
}

// add makes and starts a service container in the pod.
func add(ctx context.Context, t *testing.T, pod *harness.Pod, cfg harness.ContainerConfig) *harness.Container {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "service"
	}
	c, err := pod.Add(ctx, cfg)
	if err != nil {
		t.Fatalf("add container: %v", err)
	}
	if err := c.Start(ctx); err != nil {
		t.Fatalf("start container: %v", err)
	}
	return c
}

// idle starts a container that only waits.
func idle(ctx context.Context, t *testing.T, pod *harness.Pod) *harness.Container {
	t.Helper()
	return add(ctx, t, pod, harness.ContainerConfig{Name: "idle", Args: []string{"sleep", "100000"}})
}

// script returns a container's or exec's command line.
func script(text string) []string { return []string{"sh", "-c", text} }

// wantCode waits for a process and compares its exit code.
func wantCode(ctx context.Context, t *testing.T, p *harness.Process, want uint32) {
	t.Helper()
	code, err := p.Wait(ctx)
	if err != nil {
		t.Fatalf("%s: %v (stdout %.500q, stderr %.500q)", p.ID(), err, p.Out, p.Err)
	}
	if code != want {
		t.Errorf("%s: exit code %d, want %d (stdout %.500q, stderr %.500q)", p.ID(), code, want, p.Out, p.Err)
	}
}

// execOut runs a command in the container and returns its stdout.
func execOut(ctx context.Context, t *testing.T, c *harness.Container, cfg harness.ExecConfig) string {
	t.Helper()
	p, code, err := c.ExecRun(ctx, cfg)
	if err != nil {
		t.Fatalf("exec %v: %v", cfg.Args, err)
	}
	if code != 0 {
		t.Errorf("exec %v: exit code %d, stderr %q", cfg.Args, code, p.Err)
	}
	return p.Out.String()
}
