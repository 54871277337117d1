package isulad

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/isulad/engine"

	"github.com/katabox/katabox/tests/harness"
)

// runSeeds makes a pod and a container of it by the two commands.
func runSeeds(ctx context.Context, t *testing.T, name func(sandbox string) string) (sandbox, app *engine.Container) {
	t.Helper()
	sandbox = start(ctx, t, seedPod(), engine.Detached)
	app = start(ctx, t, seedApp(name(sandbox.ID), "sh"), engine.Detached)
	wantCalls(t, sandbox, "Create", "Start")
	wantCalls(t, app, "Create", "Start")
	if sandbox.Address() != app.Address() {
		t.Errorf("addresses %q and %q, want one", sandbox.Address(), app.Address())
	}
	want := 2
	if harness.ExternalVirtiofsd() != "" {
		want++
	}
	if procs := processesOf(sandbox.ID); len(procs) != want {
		t.Errorf("the pod's processes: %v, want a shim, a VM and what else serves its files: %d", procs, want)
	}
	if procs := processesOf(app.ID); len(procs) != 0 {
		t.Errorf("the container costs %v, want nothing", procs)
	}
	if got := execOut(ctx, t, app, "readlink", "/proc/1/fd/1"); !strings.HasPrefix(got, "/dev/pts/") && !strings.HasPrefix(got, "/dev/console") {
		t.Errorf("the shell's stdout is %q, want a terminal", got)
	}
	return sandbox, app
}

// The first round ends the pod in the intended order: its container first.
func TestSeedsWithFullID(t *testing.T) {
	ctx := testContext(t)
	sandbox, app := runSeeds(ctx, t, func(id string) string { return id })
	if err := app.Kill(ctx, 9); err != nil {
		t.Fatal(err)
	}
	wantExit(ctx, t, app, 137)
	wantCalls(t, app, "Create", "Start", "Exec", "Start(exec)", "Wait(exec)", "Kill(9)", "Wait", "Kill(0) failed", "Delete", "Shutdown")
	if err := sandbox.Stop(ctx, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	wantExit(ctx, t, sandbox, 0)
	wantCalls(t, sandbox, "Create", "Start", "Kill(15)", "Wait", "Kill(0) failed", "Delete", "Shutdown")
	if err := awaitClean(ctx, sandbox, app); err != nil {
		t.Error(err)
	}
}

// The second round stops the sandbox first: its containers are not stopped but
// end with it, and the shim waits for their Delete.
func TestSeedsWithShortIDStopSandboxFirst(t *testing.T) {
	ctx := testContext(t)
	sandbox, app := runSeeds(ctx, t, func(id string) string { return id[:12] })
	if err := sandbox.Stop(ctx, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	wantExit(ctx, t, sandbox, 0)
	wantExit(ctx, t, app, 137)
	wantCalls(t, app, "Create", "Start", "Exec", "Start(exec)", "Wait(exec)", "Wait", "Kill(0) failed", "Delete", "Shutdown")
	for _, c := range []*engine.Container{app, sandbox} {
		if err := c.Remove(ctx, true); err != nil {
			t.Error(err)
		}
	}
	if err := awaitClean(ctx, sandbox, app); err != nil {
		t.Error(err)
	}
}

// A sandbox that does not exist, because of a typing error or because it is
// given by its name: start's error names it, and no call is made.
func TestUnknownSandbox(t *testing.T) {
	ctx := testContext(t)
	for _, name := range []string{"0123456789ab", "webpod"} {
		c := create(t, bed.engine, seedApp(name, "sh"))
		if err := c.Start(ctx, engine.Detached); err == nil {
			t.Fatal("started")
		}
		l := c.Launches()[0]
		if l.ExitCode == 0 || l.Stdout != "" {
			t.Errorf("start ended with %d and printed %q", l.ExitCode, l.Stdout)
		}
		for _, want := range []string{name, c.ID} {
			if !strings.Contains(l.Stderr, want) {
				t.Errorf("stderr %q, want it to name %s", l.Stderr, want)
			}
		}
		wantExit(ctx, t, c, 125)
	}
}
