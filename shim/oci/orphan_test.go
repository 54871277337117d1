package oci

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/client"
)

// connect connects to a container's shim for the test.
func connect(t *testing.T, r *Runtime, id string) *client.Shim {
	t.Helper()
	shim, err := client.Connect(t.Context(), r.dir(id))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shim.Close() })
	return shim
}

// wantGone waits until the shim does not know an exec any more.
func wantGone(t *testing.T, shim *client.Shim, id, execID string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		resp, err := shim.State(t.Context(), &task.StateRequest{ID: id, ExecID: execID})
		if errdefs.IsNotFound(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("exec %s is %v, %v", execID, resp.GetStatus(), err)
		}
	}
}

// endedProcess returns the pid of a process that has just ended, and was not waited for.
func endedProcess(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// conmon kills the monitor of an exec that takes too long, and CRI-O the exec command
// itself: neither the exec nor its FIFOs stay.
func TestExecsMonitorKilled(t *testing.T) {
	r := newRuntime(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	create(t, r, "c1", CreateOptions{Bundle: newBundle(t, nil)})
	if err := r.Start(ctx, "c1"); err != nil {
		t.Fatal(err)
	}
	detached := ExecOptions{Process: &specs.Process{Args: []string{"sleep", "1"}, Cwd: "/"}, Detach: true}
	if _, err := r.Exec(ctx, "c1", detached); err != nil {
		t.Fatal(err)
	}
	shim, notes := connect(t, r, "c1"), r.execNotes("c1")
	if len(notes) != 1 {
		t.Fatalf("notes %v, want one", notes)
	}
	pid := notes[0].monitor.PID
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wantGone(t, shim, "c1", notes[0].execID)

	// An exec in the foreground that was killed before its start.
	if err := add(ctx, shim, "c1", "killed", detached.Process, new(client.Stdio)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.noteExec("c1", "killed", endedProcess(t)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(r.dir("c1"), execStdio("killed")), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Exec(ctx, "c1", detached); err != nil {
		t.Fatal(err)
	}
	wantGone(t, shim, "c1", "killed")
	left, err := filepath.Glob(filepath.Join(r.dir("c1"), "io-*"))
	if notes := r.execNotes("c1"); err != nil || len(left) > 0 || len(notes) != 1 {
		t.Errorf("left: %v, %v; notes %v, want that of the last exec", left, err, notes)
	}
	if err := r.Delete(ctx, "c1", true); err != nil {
		t.Error(err)
	}
}

// An exec that still runs although its monitor has ended is killed by the next exec's
// sweep, and removed by the one after that.
func TestSweepOfARunningExec(t *testing.T) {
	r := newRuntime(t)
	create(t, r, "c1", CreateOptions{Bundle: newBundle(t, nil)})
	if err := r.Start(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	shim := connect(t, r, "c1")
	if err := add(t.Context(), shim, "c1", "left", &specs.Process{Args: []string{"sleep", "1"}, Cwd: "/"}, new(client.Stdio)); err != nil {
		t.Fatal(err)
	}
	if err := startExec(t.Context(), shim, "c1", "left"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.noteExec("c1", "left", endedProcess(t)); err != nil {
		t.Fatal(err)
	}
	r.sweepExecs(t.Context(), shim, "c1")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if resp, err := shim.Wait(ctx, &task.WaitRequest{ID: "c1", ExecID: "left"}); err != nil || resp.ExitStatus != 137 {
		t.Errorf("exit %v, %v; want 137", resp, err)
	}
	r.sweepExecs(t.Context(), shim, "c1")
	wantGone(t, shim, "c1", "left")
	if notes := r.execNotes("c1"); len(notes) > 0 {
		t.Errorf("notes left: %v", notes)
	}
	if err := r.Delete(t.Context(), "c1", true); err != nil {
		t.Error(err)
	}
}
