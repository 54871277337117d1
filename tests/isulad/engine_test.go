package isulad

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/isulad/engine"
)

// After the engine dies and restarts, running containers still run, paused ones
// are still paused, and those that exited meanwhile can be taken down. The dead
// engine's connections, with their Waits, stay open.
func TestEngineRestart(t *testing.T) {
	ctx := testContext(t)
	pod := sharedPod(ctx, t)
	first, err := engine.New(bed.opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(first.Close)
	began := func(stdio engine.Stdio, args ...string) *engine.Container {
		c, err := first.Create(app(pod, args...))
		if err == nil {
			err = c.Start(ctx, stdio)
		}
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	old := map[string]*engine.Container{
		"running": began(engine.Detached, "sleep", "1000"),
		"paused":  began(engine.Detached, "sleep", "1000"),
		"stopped": began(engine.Detached, script("until [ -e /etc/end ]; do sleep 0.05; done; exit 8")...),
		// It writes after its output has lost its reader.
		"talking": began(engine.Attached, script("until [ -e /etc/end ]; do sleep 0.05; done; cat /data/blob; exit 3")...),
	}
	if err := old["paused"].Pause(ctx); err != nil {
		t.Fatal(err)
	}
	first.Crash()
	if _, _, err := old["stopped"].Exec(ctx, "touch", "/etc/end"); err != nil {
		t.Fatal(err)
	}
	ended := func() bool { return old["stopped"].Kill(ctx, 0) != nil }
	if !eventually(ctx, time.Minute, ended) {
		t.Fatal("the container did not end")
	}
	second, err := engine.New(bed.opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(second.Close)
	restored := map[string]*engine.Container{}
	for name, c := range old {
		if restored[name], err = second.Restore(ctx, c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Cleanup(func() { remove(t, restored[name]) })
	}
	wantExit(ctx, t, restored["stopped"], 255)
	wantCalls(t, restored["stopped"], "State", "restore failed", "Kill(0) failed", "Delete", "Shutdown")
	execOut(ctx, t, restored["talking"], "touch", "/etc/end")
	wantExit(ctx, t, restored["talking"], 3)
	if err := restored["paused"].Resume(ctx); err != nil {
		t.Errorf("the paused container: %v", err)
	}
	for _, name := range []string{"running", "paused"} {
		c := restored[name]
		if got := execOut(ctx, t, c, "echo", "here"); got != "here\n" {
			t.Errorf("%s: an exec printed %q", name, got)
		}
		if err := c.Kill(ctx, 9); err != nil {
			t.Error(err)
		}
		wantExit(ctx, t, c, 137)
	}
}

// Engines before v2.1.3 never call Wait: the shim writes the exit code to the
// exit FIFO.
func TestOldEngineReadsTheExitFIFO(t *testing.T) {
	ctx := testContext(t)
	opts := bed.opts
	opts.NoMonitor = true
	old, err := engine.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(old.Close)
	c := create(t, old, app(sharedPod(ctx, t), script("exit 6")...))
	if err := c.Start(ctx, engine.Foreground); err != nil {
		t.Fatal(err)
	}
	wantExit(ctx, t, c, 6)
	wantCalls(t, c, "Create", "Start", "Kill(0) failed", "Delete", "Shutdown")
}

// killLimit is how long the machine may outlive its shim: the kernel kills it
// immediately, but on a busy host its exit takes time.
const killLimit = 15 * time.Second

// iSulad never cleans up after a shim that was killed: the kernel kills the VM
// and virtiofsd immediately, and the next start removes the rest.
func TestShimKilled(t *testing.T) {
	ctx := testContext(t)
	sandbox := start(ctx, t, seedPod(), engine.Detached)
	c := start(ctx, t, seedApp(sandbox.ID, "sh"), engine.Detached)
	if err := syscall.Kill(processesOf(sandbox.ID)[shimName], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	gone := eventually(ctx, time.Minute, func() bool { return len(processesOf(sandbox.ID)) == 0 })
	if took := time.Since(killed); !gone || took > killLimit {
		t.Errorf("%v after the shim these processes were left: %v", took, processesOf(sandbox.ID))
	}
	for _, one := range []*engine.Container{sandbox, c} {
		wantExit(ctx, t, one, 0) // iSulad records 0 for a failed Wait
		wantCalls(t, one, "Create", "Start", "Wait failed", "Kill(0) failed", "Delete failed", "Shutdown failed")
	}
	left := leftOf(sandbox)
	if len(left) == 0 {
		t.Error("the test is wrong: a killed shim leaves its record")
	}
	for _, line := range left { // the share is unmounted with its last user
		if strings.HasPrefix(line, "mount ") {
			t.Errorf("left until the next start: %s", line)
		}
	}
	// The pod's container cannot be started again without its sandbox.
	if err := c.Start(ctx, engine.Detached); err == nil || !strings.Contains(err.Error(), "shim of sandbox "+sandbox.ID) {
		t.Errorf("a container of the dead sandbox was started; error %v", err)
	}
	again := start(ctx, t, single("true"), engine.Detached)
	wantExit(ctx, t, again, 0)
	if err := awaitClean(ctx, sandbox, c, again); err != nil {
		t.Error(err)
	}
}

// The shim is killed while it boots the machine, and the container is not
// started again: any other start, even one that fails, removes the rest.
func TestShimKilledDuringCreate(t *testing.T) {
	ctx := testContext(t)
	c := create(t, bed.engine, single("true"))
	started := make(chan error, 1)
	go func() { started <- c.Start(ctx, engine.Foreground) }()
	booting := func() bool { return processesOf(c.ID)[qemuName] != 0 }
	if !eventually(ctx, time.Minute, booting) {
		t.Error("no machine was started")
	}
	if err := syscall.Kill(processesOf(c.ID)[shimName], syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	if err := <-started; err == nil {
		t.Fatal("started")
	}
	wantCalls(t, c, "Create failed", "Kill(9) failed", "Delete failed", "Shutdown failed")
	if !eventually(ctx, time.Minute, func() bool { return len(processesOf(c.ID)) == 0 }) {
		t.Errorf("these processes were left: %v", processesOf(c.ID))
	}
	next := create(t, bed.engine, seedApp("0123456789ab", "sh"))
	if err := next.Start(ctx, engine.Detached); err == nil {
		t.Error("started")
	}
	if err := awaitClean(ctx, c); err != nil {
		t.Error(err)
	}
}
