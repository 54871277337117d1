package oci

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/shimtest"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// startCreating starts a process that creates a container, whose guest hangs as it boots.
func startCreating(t *testing.T, r *Runtime, id string) *running {
	t.Helper()
	booting := filepath.Join(t.TempDir(), "booting")
	t.Setenv(shimtest.HangEnv, booting)
	p := startRun(t, r, id, RunOptions{CreateOptions: CreateOptions{Bundle: newBundle(t, nil)}, Detach: true})
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(booting); err == nil {
			return p
		}
		if time.Now().After(deadline) {
			t.Fatal("the guest is not set up")
		}
	}
}

// A container that is being created has not stopped: only a forced delete removes it,
// which first ends its creation, also if the creator was stopped.
func TestDeleteOfACreating(t *testing.T) {
	r := newRuntime(t)
	p := startCreating(t, r, "c1")
	state, err := r.State(t.Context(), "c1")
	if err != nil || state.Status != specs.StateCreating || state.PID != 0 {
		t.Errorf("state %+v, %v", state, err)
	}
	if pids, err := r.Pids(t.Context(), "c1"); err != nil || len(pids) > 0 {
		t.Errorf("pids %v, %v", pids, err)
	}
	if _, err := r.Exec(t.Context(), "c1", ExecOptions{Process: &specs.Process{Args: []string{"true"}, Cwd: "/"}}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("exec: %v", err)
	}
	if err := r.Start(t.Context(), "c1"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("start: %v", err)
	}
	if err := r.Delete(t.Context(), "c1", false); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "not stopped: creating") {
		t.Errorf("deleted: %v", err)
	}
	wantStatus(t, r, "c1", specs.StateCreating)
	if err := p.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := r.Delete(t.Context(), "c1", true); err != nil {
		t.Errorf("deleted by force: %v", err)
	}
	p.ends(t, 1)
	if state, err := r.State(t.Context(), "c1"); !errdefs.IsNotFound(err) {
		t.Errorf("the container is left: %+v, %v", state, err)
	}
}

// A container whose creator was killed has stopped, as has one of an older version, whose
// record does not name the creator.
func TestDeleteWithoutACreator(t *testing.T) {
	for name, creator := range map[string]persist.Process{"killed": {PID: endedProcess(t), Start: 1}, "older": {}} {
		r := newRuntime(t)
		nameProgram(t, r)
		dir := newBundle(t, nil)
		b, err := bundle.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		rec := &record{ID: "c1", Bundle: dir, Rootfs: b.RootfsPath(), Created: time.Now().UTC(), SandboxID: "c1", Creator: creator}
		if err := r.makeDir(rec, b.Spec); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(r.dir("c1"), recordFile))
		if err != nil || strings.Contains(string(data), "creator") != (creator.PID > 0) {
			t.Errorf("%s: the record is %s, %v", name, data, err)
		}
		wantStatus(t, r, "c1", Stopped)
		if err := r.Delete(t.Context(), "c1", false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A create that fails late leaves the directory that another has made meanwhile.
func TestFailedCreateLeavesAnothersDirectory(t *testing.T) {
	r := newRuntime(t)
	failed := errors.New("failed")
	for _, another := range []bool{false, true} {
		err := r.create(t.Context(), "c1", CreateOptions{Bundle: newBundle(t, nil)}, true, func(m made) error {
			if another {
				rec := *m.rec
				rec.Created = rec.Created.Add(time.Nanosecond)
				return errors.Join(failed, r.save(&rec))
			}
			return failed
		})
		if !errors.Is(err, failed) {
			t.Error(err)
		}
		if has := r.Has("c1"); has != another {
			t.Errorf("another's: %t: the container is there: %t", another, has)
		}
	}
	if err := r.removeDir("c1"); err != nil {
		t.Error(err)
	}
}

// The record of a container that was created names its monitor, and no creator any more:
// a delete must not end that.
func TestCreatedHasNoCreator(t *testing.T) {
	r := newRuntime(t)
	pid := create(t, r, "c1", CreateOptions{Bundle: newBundle(t, nil)})
	rec, err := r.load("c1")
	if err != nil || rec.Monitor.PID != pid || rec.Creator != (persist.Process{}) {
		t.Errorf("record %+v, %v", rec, err)
	}
	if err := r.Delete(t.Context(), "c1", true); err != nil {
		t.Error(err)
	}
	reap(t, pid)
}
