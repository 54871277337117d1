package virtcontainers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/virtcontainers"
)

// processIn makes a process of a pod's service container and brings it into a
// state.
func (p *pod) processIn(state virtcontainers.State, execID string) *virtcontainers.Process {
	p.t.Helper()
	c := p.create("c1")
	process := initOf(p.t, c)
	if execID != "" {
		p.start(process)
		process = p.exec(c, execID)
	}
	if state == virtcontainers.Created {
		return process
	}
	p.start(process)
	if state == virtcontainers.Stopped {
		p.exits("c1", execID, 0)
		statusOf(p.t, process)
	}
	return process
}

func TestKill(t *testing.T) {
	t.Parallel()
	const created, running, stopped = virtcontainers.Created, virtcontainers.Running, virtcontainers.Stopped
	tests := []struct {
		state  virtcontainers.State
		execID string
		signal uint32
		is     func(error) bool // nil: succeeds
		text   string
		ends   bool
	}{
		{created, "", 0, nil, "", false},
		{created, "", 9, nil, "", true},
		{created, "", 15, nil, "", true},
		{running, "", 0, nil, "", false},
		{running, "", 9, nil, "", true},
		{running, "", 15, nil, "", true},
		{stopped, "", 0, errdefs.IsNotFound, "process already finished", false},
		{stopped, "", 9, errdefs.IsNotFound, "process already finished", false},
		{created, "e1", 0, errdefs.IsFailedPrecondition, "process not created", false},
		{created, "e1", 9, errdefs.IsFailedPrecondition, "process not created", false},
		{running, "e1", 0, nil, "", false},
		{running, "e1", 9, nil, "", true},
		{running, "e1", 15, nil, "", true},
		{stopped, "e1", 9, errdefs.IsNotFound, "process already finished", false},
	}
	p := newPod(t)
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %q signal %d", tt.state, tt.execID, tt.signal), func(t *testing.T) {
			p := &pod{Sandbox: p.Sandbox, t: t, host: p.host, observer: p.observer}
			process := p.processIn(tt.state, tt.execID)
			err := process.Kill(t.Context(), tt.signal, false)
			if tt.is != nil {
				wantError(t, "kill", err, tt.is, tt.text)
			} else if err != nil {
				t.Error(err)
			}
			if tt.ends {
				if status := statusOf(t, process); status != 128+tt.signal {
					t.Errorf("status %d after signal %d", status, tt.signal)
				}
			}
			p.drop("c1")
		})
	}
}

// drop kills and deletes a container.
func (p *pod) drop(id string) {
	p.t.Helper()
	c, err := p.Container(id)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := initOf(p.t, c).Kill(p.t.Context(), 9, true); err != nil && !errdefs.IsNotFound(err) {
		p.t.Error(err)
	}
	statusOf(p.t, initOf(p.t, c))
	if _, err := c.Delete(p.t.Context()); err != nil {
		p.t.Error(err)
	}
}

// The signal may end the sandbox before the answer comes: that is success.
func TestKillEndsTheSandbox(t *testing.T) {
	p := newPod(t)
	process := initOf(t, p.run(sandboxID))
	p.host.Agent.After("Kill", func(ctx context.Context, _ proto.Message) error {
		<-ctx.Done() // the machine is gone before the answer is sent
		return ctx.Err()
	})
	if err := process.Kill(t.Context(), 9, true); err != nil {
		t.Errorf("got %v", err)
	}
	p.awaitStopped()
	p.observer.expect(t, "pod=137")
}

// If the guest dies during a Kill, the Kill succeeds: the process has ended.
func TestKillWhileTheGuestDies(t *testing.T) {
	for name, ask := range map[string]func(*pod, *virtcontainers.Container) error{
		"kill": func(p *pod, c *virtcontainers.Container) error { return initOf(p.t, c).Kill(p.t.Context(), 9, true) },
		"delete of what was not started": func(p *pod, c *virtcontainers.Container) error {
			_, err := c.Delete(p.t.Context())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			c := p.create(sandboxID)
			p.host.Agent.Hook("Kill", func(ctx context.Context, _ proto.Message) error {
				go p.host.Agent.Die()
				<-ctx.Done()
				return ctx.Err()
			})
			if err := ask(p, c); err != nil {
				t.Errorf("got %v", err)
			}
			p.awaitStopped()
			p.observer.expect(t, "pod=255")
		})
	}
}

func TestStart(t *testing.T) {
	p := newPod(t)
	c := p.run(sandboxID)
	process := initOf(t, c)
	if info := process.Info(); info.State != virtcontainers.Running || info.PID != c.PID() || info.PID == 0 {
		t.Errorf("info: %+v", info)
	}
	never := func(virtcontainers.ProcessInfo) { t.Error("a start that failed was announced") }
	wantError(t, "start again", process.Start(t.Context(), never), errdefs.IsFailedPrecondition, "running")

	// An init that cannot be started can be tried again.
	c1 := p.create("c1")
	p.host.Agent.Fail("Start", errInjected)
	wantError(t, "start of c1", initOf(t, c1).Start(t.Context(), never), func(error) bool { return true }, "injected")
	p.host.Agent.Fail("Start", nil)
	p.start(initOf(t, c1))

	// An exec that cannot be started has ended, and its exit is not reported.
	p.host.Agent.Fail("Start", errInjected)
	e1 := p.exec(c, "e1")
	wantError(t, "start of e1", e1.Start(t.Context(), never), func(error) bool { return true }, "exec e1 of container pod")
	if status := statusOf(t, e1); status != virtcontainers.ExitLost {
		t.Errorf("status %d", status)
	}
	wantError(t, "start of e1 again", e1.Start(t.Context(), never), errdefs.IsFailedPrecondition, "stopped")
	p.observer.expect(t)
	if _, err := e1.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStartTwiceAtOnce(t *testing.T) {
	p := newPod(t)
	process := initOf(t, p.create(sandboxID))
	begun, release := make(chan struct{}), make(chan struct{})
	p.host.Agent.Hook("Start", func(context.Context, proto.Message) error {
		close(begun)
		<-release
		return nil
	})
	started := make(chan error, 1)
	go func() { started <- process.Start(t.Context(), ignore) }()
	await(t, "the first start", begun)
	wantError(t, "the second start", process.Start(t.Context(), ignore), errdefs.IsFailedPrecondition, "being started")
	close(release)
	if err := await(t, "the end of the first start", started); err != nil {
		t.Error(err)
	}
}

func TestExec(t *testing.T) {
	p := newPod(t)
	c := p.create(sandboxID)
	opts := virtcontainers.ExecOptions{ID: "e1", Terminal: true, IO: newIO(virtcontainers.Streams{Stdin: true, Stdout: true})}
	p.start(initOf(t, c))
	for _, id := range []string{"", "../e", "a/b"} {
		_, err := c.Exec(t.Context(), virtcontainers.ExecOptions{ID: id, IO: opts.IO})
		wantError(t, "bad id", err, errdefs.IsInvalidArgument, "exec in container")
	}
	p.host.Agent.Fail("Exec", errdefs.ErrInvalidArgument)
	_, err := c.Exec(t.Context(), opts)
	wantError(t, "exec that the agent refuses", err, errdefs.IsInvalidArgument, "exec in container")
	p.host.Agent.Fail("Exec", nil)
	e, err := c.Exec(t.Context(), opts) // the id is free again
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Exec(t.Context(), opts)
	wantError(t, "the same id again", err, errdefs.IsAlreadyExists, "e1")
	if found, err := c.Process("e1"); found != e || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
	if !e.Info().Terminal || e.IO() != opts.IO {
		t.Errorf("info %+v", e.Info())
	}
	if err := e.Resize(t.Context(), 80, 25); err != nil {
		t.Error(err)
	}
	p.start(e)
	if err := p.host.Agent.Write(sandboxID, "e1", "hello"); err != nil {
		t.Fatal(err)
	}
	p.exits(sandboxID, "e1", 0)
	statusOf(t, e)
	if got, _ := opts.IO.(*testIO).output(); got != "hello" {
		t.Errorf("output %q", got)
	}
	if pids := c.Pids(t.Context()); len(pids) != 1 {
		t.Errorf("processes %v", pids)
	}
	p.exits(sandboxID, "", 0)
	p.awaitStopped()
	_, err = c.Exec(t.Context(), virtcontainers.ExecOptions{ID: "e2", IO: opts.IO})
	wantError(t, "exec in a container that has ended", err, errdefs.IsFailedPrecondition, "it is stopped, want")
	wantError(t, "resize of an exec that has ended", e.Resize(t.Context(), 80, 25), errdefs.IsFailedPrecondition, "it is stopped")
}

func TestDelete(t *testing.T) {
	t.Parallel()
	tests := []struct {
		state  virtcontainers.State
		execID string
		is     func(error) bool // nil: succeeds
		status uint32
	}{
		{virtcontainers.Created, "", nil, 137},
		{virtcontainers.Running, "", errdefs.IsFailedPrecondition, 0},
		{virtcontainers.Stopped, "", nil, 0},
		{virtcontainers.Created, "e1", nil, 0},
		{virtcontainers.Running, "e1", errdefs.IsFailedPrecondition, 0},
		{virtcontainers.Stopped, "e1", nil, 0},
	}
	p := newPod(t)
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %q", tt.state, tt.execID), func(t *testing.T) {
			p := &pod{Sandbox: p.Sandbox, t: t, host: p.host, observer: p.observer}
			process := p.processIn(tt.state, tt.execID)
			c, err := p.Container("c1")
			if err != nil {
				t.Fatal(err)
			}
			remove := c.Delete
			if tt.execID != "" {
				remove = process.Delete
			}
			exit, err := remove(t.Context())
			if tt.is != nil {
				wantError(t, "delete", err, tt.is, "running")
			} else if err != nil || exit.Status != tt.status || exit.PID != c.PID() || exit.PID == 0 {
				t.Errorf("exit %+v, %v", exit, err)
			}
			if tt.is == nil {
				if _, err := remove(t.Context()); !errdefs.IsNotFound(err) {
					t.Errorf("delete again: %v", err)
				}
				if process.Info().State != virtcontainers.Deleted {
					t.Errorf("state %s", process.Info().State)
				}
			}
			if _, err := p.Container("c1"); err == nil {
				p.drop("c1")
			}
			if n := p.host.Agent.Containers(); n != 0 {
				t.Errorf("%d containers are left in the guest", n)
			}
		})
	}
	checkNoMounts(t, p)
}

// Two callers delete the same process: an engine that was killed during its call
// calls again when it is back. The second waits, and then there is no process.
func TestDeleteTwiceAtOnce(t *testing.T) {
	t.Parallel()
	for _, execID := range []string{"", "e1"} {
		t.Run(execID, func(t *testing.T) {
			p := newPod(t)
			p.run(sandboxID)
			process := p.processIn(virtcontainers.Stopped, execID)
			c, err := p.Container("c1")
			if err != nil {
				t.Fatal(err)
			}
			remove := c.Delete
			if execID != "" {
				remove = process.Delete
			}
			hanging := p.host.Agent.Hang("Delete")
			ctx, cancel := context.WithCancel(t.Context())
			first, second := make(chan error, 1), make(chan error, 1)
			var again virtcontainers.Exit
			go func() {
				_, err := remove(ctx)
				first <- err
			}()
			await(t, "the first delete", hanging)
			cancel() // the engine is dead
			gaveUp, giveUp := context.WithCancelCause(t.Context())
			giveUp(errInjected)
			if _, err := remove(gaveUp); !errors.Is(err, errInjected) {
				t.Errorf("a second delete that gave up: %v", err)
			}
			go func() {
				var err error
				again, err = remove(t.Context())
				second <- err
			}()
			select {
			case err := <-second:
				t.Errorf("deleted again during the first delete: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			p.host.VM().Die(errDied)
			<-first
			err = await(t, "the second delete", second)
			if want := process.Info().Exit; !errors.Is(err, virtcontainers.ErrDeleted) || again != want {
				t.Errorf("delete again: %+v, %v, want %+v", again, err, want)
			}
		})
	}
}

// If the first of two deletions fails, the second fails for the same reason.
func TestDeleteFailsTwiceAtOnce(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	p.run(sandboxID)
	p.processIn(virtcontainers.Stopped, "")
	c, err := p.Container("c1")
	if err != nil {
		t.Fatal(err)
	}
	deleting, goOn := make(chan struct{}), make(chan struct{})
	p.host.Agent.Hook("Delete", func(context.Context, proto.Message) error {
		close(deleting)
		<-goOn
		return errdefs.ErrDataLoss
	})
	errs := make(chan error, 2)
	remove := func() {
		_, err := c.Delete(t.Context())
		errs <- err
	}
	go remove()
	await(t, "the first delete", deleting)
	go remove()
	close(goOn)
	for range 2 {
		if err := await(t, "a delete", errs); !errdefs.IsDataLoss(err) {
			t.Errorf("got %v", err)
		}
	}
}

// checkNoMounts checks that no container has left a mount on the host.
func checkNoMounts(t *testing.T, p *pod) {
	t.Helper()
	left, err := p.host.Leftovers()
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range left {
		if strings.HasPrefix(what, "mount") {
			t.Errorf("left: %s", what)
		}
	}
}

// A Delete that comes while the sandbox ends waits for it, so that nothing is
// left afterwards; it can give up.
func TestDeleteWhileTheSandboxStops(t *testing.T) {
	p := newPod(t)
	c, c1 := p.run(sandboxID), p.run("c1")
	hanging := p.host.Agent.Hang("Kill")
	p.exits(sandboxID, "", 0)
	await(t, "the end of c1", hanging)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInjected)
	if _, err := c.Delete(ctx); !errors.Is(err, errInjected) {
		t.Errorf("a delete that gave up: %v", err)
	}
	deleted := make(chan error, 1)
	go func() {
		_, err := c.Delete(t.Context())
		deleted <- err
	}()
	select {
	case err := <-deleted:
		t.Errorf("deleted while the sandbox was stopping: %v", err)
	case <-p.Stopped():
		t.Error("the sandbox stopped although c1 runs")
	default:
	}
	p.exits("c1", "", 0) // at last
	p.host.VM().Die(errDied)
	if err := await(t, "the delete", deleted); err != nil {
		t.Error(err)
	}
	select {
	case <-p.Stopped():
	default:
		t.Error("deleted before the sandbox had stopped")
	}
	checkNothingLeft(t, p.host)
	statusOf(t, initOf(t, c1))
	if _, err := c1.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if !p.Empty() {
		t.Error("the sandbox is not empty")
	}
}

// When the first container's exit is reported the sandbox is already ending: an
// immediate Delete waits for its end too.
func TestDeleteAtOnce(t *testing.T) {
	t.Parallel()
	for range 5 {
		p := newPod(t)
		c := p.run(sandboxID)
		deleted := make(chan error, 1)
		p.observer.onExit = func(virtcontainers.Exit) {
			<-initOf(t, c).Done()
			go func() {
				_, err := c.Delete(context.Background())
				select {
				case <-p.Stopped():
				default:
					err = errors.Join(err, errors.New("deleted before the sandbox had stopped"))
				}
				deleted <- err
			}()
		}
		p.exits(sandboxID, "", 0)
		if err := await(t, "the delete", deleted); err != nil {
			t.Error(err)
		}
	}
}

func TestDeleteFails(t *testing.T) {
	p := newPod(t)
	c := p.run(sandboxID)
	c1 := p.run("c1")
	e1 := p.exec(c, "e1")
	p.host.Agent.Fail("Delete", errInjected)
	_, err := e1.Delete(t.Context())
	wantError(t, "delete of e1", err, func(error) bool { return true }, "delete exec e1")
	p.exits("c1", "", 3)
	statusOf(t, initOf(t, c1))
	exit, err := c1.Delete(t.Context())
	wantError(t, "delete of c1", err, func(error) bool { return true }, "delete container c1")
	if exit.Status != 3 {
		t.Errorf("exit %+v", exit)
	}
	if _, err := p.Container("c1"); !errdefs.IsNotFound(err) {
		t.Errorf("the container is still there: %v", err)
	}
}

func TestWait(t *testing.T) {
	p := newPod(t)
	c := p.run(sandboxID)
	process := initOf(t, c)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInjected)
	if _, err := process.Wait(ctx); !errors.Is(err, errInjected) {
		t.Errorf("a wait that was cancelled: %v", err)
	}
	var (
		wg    sync.WaitGroup
		exits [10]virtcontainers.Exit
		errs  [10]error
	)
	for i := range exits {
		wg.Go(func() { exits[i], errs[i] = process.Wait(t.Context()) })
	}
	p.exits(sandboxID, "", 42)
	wg.Wait()
	late, err := process.Wait(t.Context())
	for i := range exits {
		if diff := cmp.Diff(late, exits[i]); diff != "" || errs[i] != nil {
			t.Errorf("waiter %d: %v %s", i, errs[i], diff)
		}
	}
	if err != nil || late.Status != 42 || late.ContainerID != sandboxID || late.PID != c.PID() || late.PID == 0 {
		t.Errorf("exit %+v, %v", late, err)
	}
	<-process.Done()
}

// The exit is reported once the engine has the output.
func TestExitWaitsForOutput(t *testing.T) {
	p := newPod(t)
	io := newIO(virtcontainers.Streams{Stdout: true})
	io.hold = make(chan struct{})
	c, err := p.Create(t.Context(), p.options(sandboxID, io), ignore)
	if err != nil {
		t.Fatal(err)
	}
	p.start(initOf(t, c))
	if err := p.host.Agent.Write(sandboxID, "", "last words"); err != nil {
		t.Fatal(err)
	}
	p.exits(sandboxID, "", 0)
	eventually(t, "the exit event", func() bool { return p.host.Agent.EventsTaken() > 0 })
	select {
	case <-initOf(t, c).Done():
		t.Error("the exit was recorded before the output")
	default:
	}
	close(io.hold)
	statusOf(t, initOf(t, c))
	if got, _ := io.output(); got != "last words" {
		t.Errorf("output %q", got)
	}
}
