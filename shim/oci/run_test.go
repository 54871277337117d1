package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/shimtest"
)

// runEnv makes this program run a container, as the run command does: Run relays this
// process's own stdio and signals.
const runEnv = "KATABOX_TEST_RUN"

// runOrder is the JSON in runEnv.
type runOrder struct {
	Runtime *Runtime
	ID      string
	Options RunOptions
}

func runMain(data string) int {
	var order runOrder
	if err := json.Unmarshal([]byte(data), &order); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	exit, err := order.Runtime.Run(context.Background(), order.ID, order.Options)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if exit.Lost != nil {
		fmt.Fprintln(os.Stderr, exit.Lost)
	}
	return exit.Code
}

// running is a process that runs a container.
type running struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

func startRun(t *testing.T, r *Runtime, id string, o RunOptions) *running {
	t.Helper()
	return startRunTo(t, r, id, o, nil)
}

// startRunTo is startRun with a standard output; nil is none.
func startRunTo(t *testing.T, r *Runtime, id string, o RunOptions, stdout *os.File) *running {
	t.Helper()
	order, err := json.Marshal(runOrder{Runtime: r, ID: id, Options: o})
	if err != nil {
		t.Fatal(err)
	}
	p := &running{cmd: exec.Command(r.Program)}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), runEnv+"="+string(order)), &p.stderr
	if stdout != nil {
		p.cmd.Stdout = stdout
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait() // it was called before if the test has not failed
	})
	return p
}

// awaitRunning waits until the container runs.
func (p *running) awaitRunning(t *testing.T, r *Runtime, id string) *State {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		state, err := r.State(t.Context(), id)
		if err == nil && state.Status == Running {
			return state
		}
		if time.Now().After(deadline) {
			t.Fatalf("container %s: %+v, %v; want it to run", id, state, err)
		}
	}
}

// ends waits for the process's end, and checks its exit code.
func (p *running) ends(t *testing.T, want int) {
	t.Helper()
	err := p.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Error(err)
	} else if got := p.cmd.ProcessState.ExitCode(); got != want {
		t.Errorf("the process has ended: %d, %v, want %d: %s", got, exit, want, &p.stderr)
	}
}

// A container that run runs is represented by that process, which passes its signals on,
// ends with its exit code, and leaves nothing.
func TestRun(t *testing.T) {
	r := newRuntime(t)
	pidFile := filepath.Join(t.TempDir(), "pid")
	p := startRun(t, r, "c1", RunOptions{CreateOptions: CreateOptions{Bundle: newBundle(t, nil), PIDFile: pidFile}})
	state := p.awaitRunning(t, r, "c1")
	data, err := os.ReadFile(pidFile)
	for deadline := time.Now().Add(patience); errors.Is(err, os.ErrNotExist) && time.Now().Before(deadline); data, err = os.ReadFile(pidFile) {
		time.Sleep(time.Millisecond)
	}
	if state.PID != p.cmd.Process.Pid || err != nil || string(data) != strconv.Itoa(state.PID) {
		t.Errorf("the container has the pid %d, its file %q, %v; want %d", state.PID, data, err, p.cmd.Process.Pid)
	}
	if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.ends(t, 143)
	if state, err := r.State(t.Context(), "c1"); !errdefs.IsNotFound(err) {
		t.Errorf("the container is left: %+v, %v", state, err)
	}
}

// An engine such as BuildKit keeps the container, kills it by its id, and deletes it
// afterwards.
func TestRunKeeps(t *testing.T) {
	r := newRuntime(t)
	p := startRun(t, r, "c1", RunOptions{CreateOptions: CreateOptions{Bundle: newBundle(t, nil)}, Keep: true})
	p.awaitRunning(t, r, "c1")
	if err := r.Kill(t.Context(), "c1", uint32(unix.SIGKILL), false); err != nil {
		t.Fatal(err)
	}
	p.ends(t, 137)
	wantStatus(t, r, "c1", Stopped)
	if err := r.Delete(t.Context(), "c1", false); err != nil {
		t.Error(err)
	}
}

// A container that run runs ends with that process, and another can delete it by force
// while it runs.
func TestRunIsKilled(t *testing.T) {
	r := newRuntime(t)
	p := startRun(t, r, "c1", RunOptions{CreateOptions: CreateOptions{Bundle: newBundle(t, nil)}})
	p.awaitRunning(t, r, "c1")
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.ends(t, -1)
	wantStatus(t, r, "c1", Stopped)
	if err := r.Delete(t.Context(), "c1", false); err != nil {
		t.Error(err)
	}
	p = startRun(t, r, "c2", RunOptions{CreateOptions: CreateOptions{Bundle: newBundle(t, nil)}})
	p.awaitRunning(t, r, "c2")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.ends(t, 137)
	}()
	if err := r.Delete(t.Context(), "c2", true); err != nil {
		t.Error(err)
	}
	<-ended
}

// A signal while the container is created ends the creation, which leaves nothing.
func TestRunIsCancelled(t *testing.T) {
	r := newRuntime(t)
	booting := filepath.Join(t.TempDir(), "booting")
	t.Setenv(shimtest.HangEnv, booting)
	p := startRun(t, r, "c1", RunOptions{CreateOptions: CreateOptions{Bundle: newBundle(t, nil)}, Keep: true})
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(booting); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the guest is not set up")
		}
	}
	if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.ends(t, 1)
	if state, err := r.State(t.Context(), "c1"); !errdefs.IsNotFound(err) {
		t.Errorf("the container is left: %+v, %v", state, err)
	}
}

func TestRunDetached(t *testing.T) {
	r := newRuntime(t)
	pidFile := filepath.Join(t.TempDir(), "pid")
	o := RunOptions{CreateOptions: CreateOptions{Bundle: newBundle(t, nil), PIDFile: pidFile}, Detach: true}
	if exit, err := r.Run(t.Context(), "c1", o); err != nil || exit.Code != 0 {
		t.Fatalf("exit code %d, %v", exit.Code, err)
	}
	state := wantStatus(t, r, "c1", Running)
	if err := r.Kill(t.Context(), "c1", uint32(unix.SIGKILL), false); err != nil {
		t.Fatal(err)
	}
	if code := reap(t, state.PID); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
	if err := r.Delete(t.Context(), "c1", false); err != nil {
		t.Error(err)
	}
}

// A run that fails leaves nothing.
func TestRunFails(t *testing.T) {
	for want, o := range map[string]CreateOptions{
		"config.json":      {Bundle: "/nowhere"},
		"--console-socket": {Bundle: newBundle(t, func(s *specs.Spec) { s.Process.Terminal = true }), ConsoleSocket: "/nowhere"},
		"write pid file":   {Bundle: newBundle(t, nil), PIDFile: "/nowhere/pid"},
	} {
		p := startRun(t, newRuntime(t), "c1", RunOptions{CreateOptions: o})
		p.ends(t, 1)
		if !strings.Contains(p.stderr.String(), want) {
			t.Errorf("it says %q, want %s", &p.stderr, want)
		}
	}
}

// A pid file says that the container runs: there is none if its start fails.
func TestRunThatCannotStart(t *testing.T) {
	for _, detach := range []bool{false, true} {
		t.Setenv(shimtest.StartFailsEnv, "no such program")
		r, pidFile := newRuntime(t), filepath.Join(t.TempDir(), "pid")
		p := startRun(t, r, "c1", RunOptions{CreateOptions: CreateOptions{Bundle: newBundle(t, nil), PIDFile: pidFile}, Detach: detach})
		p.ends(t, 1)
		if !strings.Contains(p.stderr.String(), "no such program") {
			t.Errorf("detached: %v: it says %q", detach, &p.stderr)
		}
		if _, err := os.Lstat(pidFile); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("detached: %v: the pid file: %v; it says %q", detach, err, &p.stderr)
		}
		if state, err := r.State(t.Context(), "c1"); !errdefs.IsNotFound(err) {
			t.Errorf("detached: %v: the container is left: %+v, %v", detach, state, err)
		}
	}
}

// The output of a container that run runs may go to a file whose disk is full: the
// container runs on, and its end says what was lost.
func TestRunToAFullDisk(t *testing.T) {
	const size = 400 << 10
	ended := shimtest.EndsItself(t, size)
	r := newRuntime(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	p := startRunTo(t, r, "c1", RunOptions{CreateOptions: CreateOptions{Bundle: newBundle(t, nil)}}, full)
	p.awaitRunning(t, r, "c1")
	if err := r.Kill(t.Context(), "c1", shimtest.EndSignal, false); err != nil {
		t.Fatal(err)
	}
	ended()
	p.ends(t, shimtest.EndCode)
	if want := fmt.Sprintf("standard output: no space left on device: %d bytes were lost\n", size); p.stderr.String() != want {
		t.Errorf("it says %q, want %q", &p.stderr, want)
	}
}
