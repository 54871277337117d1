package virtcontainers_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/persist"
)

func TestVirtiofsdDeath(t *testing.T) {
	t.Parallel() // it waits, and so do others
	daemon := findDaemon()
	if daemon == "" {
		t.Skip("no virtiofsd is installed")
	}
	p := bootChanged(t, newHost(t), func(o *virtcontainers.Options) { o.Config.Hypervisor.VirtioFS.Daemon = daemon })
	p.run(sandboxID)
	rec, err := persist.Load(p.host.Platform().StateDir(), sandboxID)
	if err != nil {
		t.Fatal(err)
	}
	if !rec.FSDaemon.Alive() {
		t.Fatalf("record: %+v", rec)
	}
	if err := syscall.Kill(rec.FSDaemon.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.awaitStopped()
	p.observer.expect(t, "pod=255")
	checkNothingLeft(t, p.host)
}

// Calls to a sandbox that is gone return immediately.
func TestCallsAfterLoss(t *testing.T) {
	p := newPod(t)
	opts := p.options(sandboxID, nil)
	opts.Terminal = true
	c, err := p.Create(t.Context(), opts, ignore)
	if err != nil {
		t.Fatal(err)
	}
	p.start(initOf(t, c))
	if err := initOf(t, c).Resize(t.Context(), 80, 25); err != nil {
		t.Error(err)
	}
	e1 := p.exec(c, "e1")
	c1 := p.create("c1")
	p.host.VM().Die(errDied)
	p.awaitStopped()
	p.observer.expect(t, "pod=255", "c1=255")
	ctx, process := t.Context(), initOf(t, c)
	never := func(virtcontainers.ProcessInfo) { t.Error("a start after the end was announced") }
	anyError := func(error) bool { return true }
	wantError(t, "kill", process.Kill(ctx, 9, true), errdefs.IsNotFound, "already finished")
	wantError(t, "start of c1", initOf(t, c1).Start(ctx, never), errdefs.IsFailedPrecondition, "stopped")
	wantError(t, "start of e1", e1.Start(ctx, never), anyError, "e1")
	wantError(t, "resize", process.Resize(ctx, 1, 1), errdefs.IsUnavailable, "is gone")
	wantError(t, "ping", p.Ping(ctx), errdefs.IsUnavailable, "is gone")
	_, err = p.IPTables(ctx, false)
	wantError(t, "get iptables", err, errdefs.IsUnavailable, "is gone")
	wantError(t, "set iptables", p.SetIPTables(ctx, false, nil), errdefs.IsUnavailable, "is gone")
	if list := c.Pids(ctx); len(list) != 1 {
		t.Errorf("pids: %v, want its process alone", list)
	}
	_, err = c.Exec(ctx, virtcontainers.ExecOptions{ID: "e2", IO: newIO(virtcontainers.Streams{})})
	wantError(t, "exec", err, errdefs.IsFailedPrecondition, "stopped")
	if status := statusOf(t, e1); status != virtcontainers.ExitLost {
		t.Errorf("e1: %d", status)
	}
	if _, err := e1.Delete(ctx); err != nil {
		t.Error(err)
	}
	for _, c := range []*virtcontainers.Container{c, c1} {
		if exit, err := c.Delete(ctx); err != nil || exit.Status != virtcontainers.ExitLost {
			t.Errorf("delete %s: %+v, %v", c.ID, exit, err)
		}
	}
	if !p.Empty() {
		t.Error("the sandbox is not empty")
	}
	if status := p.End().Status; status != virtcontainers.ExitLost {
		t.Errorf("the sandbox ended with %d", status)
	}
}

func TestVMDeathDuringStart(t *testing.T) {
	t.Parallel()
	for _, execID := range []string{"", "e1"} {
		p := newPod(t)
		c := p.create(sandboxID)
		process, want := initOf(t, c), []string{"pod=255"}
		if execID != "" {
			p.start(process)
			process = p.exec(c, execID)
		}
		p.host.Agent.Hook("Start", func(ctx context.Context, _ proto.Message) error {
			p.host.VM().Die(hypervisor.ErrPowerOff)
			<-ctx.Done()
			return ctx.Err()
		})
		if err := process.Start(t.Context(), func(virtcontainers.ProcessInfo) { t.Error("announced") }); err == nil {
			t.Error("a start succeeded in a machine that died")
		}
		p.awaitStopped()
		if status := statusOf(t, process); status != virtcontainers.ExitLost {
			t.Errorf("status %d", status)
		}
		p.observer.expect(t, want...)
	}
}

// The wait for a guest that does not answer is bounded. These tests run in
// parallel, as each waits the whole time.
func TestWaitsHaveAnEnd(t *testing.T) {
	t.Parallel() // it waits, and so do others
	noAnswer, noExit, noExecExit := newPod(t), newPod(t), newPod(t)

	noAnswer.run(sandboxID)
	noAnswer.start(noAnswer.exec(noAnswer.run("c1"), "e1"))
	noAnswer.host.Agent.Hang("Kill")
	noAnswer.exits(sandboxID, "", 0)

	noExit.run(sandboxID)
	noExit.run("c1")
	if err := noExit.host.Agent.Deafen("c1", ""); err != nil {
		t.Fatal(err)
	}
	noExit.exits(sandboxID, "", 1)

	c := noExecExit.run(sandboxID)
	e1 := noExecExit.exec(c, "e1")
	noExecExit.start(e1)
	if err := noExecExit.host.Agent.Deafen(sandboxID, ""); err != nil {
		t.Fatal(err)
	}
	noExecExit.host.Agent.Send(exitEvent(sandboxID, "", 6)) // and never e1's exit

	for p, want := range map[*pod][]string{
		noAnswer: {"pod=0", "c1=137", "c1/e1=137"}, noExit: {"pod=1", "c1=137"}, noExecExit: {"pod=6", "pod/e1=137"},
	} {
		p.awaitStopped()
		p.observer.expect(t, want...)
	}
}

func TestStop(t *testing.T) {
	p := newPod(t)
	p.run(sandboxID)
	release := make(chan struct{})
	ctx, cancel := context.WithCancelCause(t.Context())
	p.host.Agent.Hook("Kill", func(context.Context, proto.Message) error {
		cancel(errInjected)
		<-release
		return nil
	})
	if err := p.Stop(ctx); !errors.Is(err, errInjected) {
		t.Errorf("a Stop that gave up: %v", err)
	}
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if err := p.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	close(release)
	wg.Wait()
	p.observer.expect(t, "pod=137")
	if end := p.End(); end.Status != 0 || end.At.IsZero() {
		t.Errorf("the sandbox ended with %+v", end)
	}
	if stops := p.host.VM().Stops(); stops == 0 {
		t.Error("the machine was not stopped")
	}
	checkNothingLeft(t, p.host)
}

// removeMarked removes the record of a machine that did not end, as a later sweep does.
func removeMarked(t *testing.T, host *fakeguest.Host) {
	t.Helper()
	dir := host.Platform().StateDir()
	rec, err := persist.Load(dir, sandboxID)
	if err != nil || rec.VM.PID == 0 {
		t.Errorf("the record is %+v, %v", rec, err)
	}
	if _, err := os.Stat(filepath.Join(dir, sandboxID, "removing")); err != nil {
		t.Errorf("the record has no mark: %v", err)
	}
	if err := persist.Remove(dir, sandboxID); err != nil {
		t.Error(err)
	}
}

// Stop returns the teardown's errors.
func TestStopFails(t *testing.T) {
	t.Parallel() // it waits, and so do others
	p := newPod(t)
	p.host.Monitor.Fail(fake.StepStop, errInjected)
	if err := p.Stop(t.Context()); !errors.Is(err, errInjected) || !strings.Contains(err.Error(), "undo vm") {
		t.Errorf("got %v", err)
	} else if said := strings.Count(err.Error(), "its user id, cgroups and record stay"); said != 1 {
		t.Errorf("said %d times, want once, what stays: %v", said, err)
	}
	p.host.VM().Die(errDied)
	removeMarked(t, p.host)
	eventually(t, "the machine's end", func() bool {
		left, err := p.host.Leftovers()
		return err == nil && len(left) == 0
	})
	p.expectsStopError()
}

func TestHealthCheck(t *testing.T) {
	for name, script := range map[string]func(*fakeguest.Agent){
		"hangs": func(a *fakeguest.Agent) { a.Hang("Hello") }, // the machine lives, the agent does not
		// The guest's server says so, a moment before the host sees it.
		"has no time left": func(a *fakeguest.Agent) { a.Fail("Hello", context.DeadlineExceeded) },
	} {
		t.Run(name, func(t *testing.T) { testHealthCheck(t, script) })
	}
}

func testHealthCheck(t *testing.T, script func(*fakeguest.Agent)) {
	t.Parallel() // it waits, and so do others
	host, o := newHost(t), newObserver()
	opts := options(o)
	opts.Config.Agent.HealthInterval, opts.Config.Agent.HealthTimeout = 10*time.Millisecond, time.Second
	s, err := virtcontainers.New(t.Context(), host.Platform(), opts)
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{Sandbox: s, t: t, host: host, observer: o}
	p.run(sandboxID)
	var pings int
	eventually(t, "some signs of life", func() bool {
		pings = 0
		for _, call := range host.Agent.Calls() {
			if call == "Hello" {
				pings++
			}
		}
		return pings > 3
	})
	select {
	case <-p.Stopped():
		t.Error("a sandbox that answers was given up")
	default:
	}
	script(host.Agent)
	p.awaitStopped()
	o.expect(t, "pod=255")
	checkNothingLeft(t, host)
}
