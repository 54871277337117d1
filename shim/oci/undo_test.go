package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/client"
	"github.com/katabox/katabox/shim/shimtest/files"
)

// A forced delete succeeds although the shim was stopped: its program ends it.
func TestDeleteWithAStoppedShim(t *testing.T) {
	r := newRuntime(t)
	nameProgram(t, r)
	r.answerTimeout = 2 * time.Second
	pid := create(t, r, "c1", CreateOptions{Bundle: newBundle(t, nil)})
	if err := r.Start(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	shim := files.ShimPID(t, r.dir("c1"))
	stopShim(t, shim)
	begin := time.Now()
	if err := r.Delete(t.Context(), "c1", true); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > patience {
		t.Errorf("it took %v", took)
	}
	wantEnded(t, shim)
	if code := reap(t, pid); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
}

// A forced delete of a later container of a pod whose shim was stopped is an
// error, since the guest still runs it. The pod's own ends both.
func TestDeleteOfOneWithAStoppedShim(t *testing.T) {
	r := newRuntime(t)
	nameProgram(t, r)
	r.answerTimeout = 2 * time.Second
	pod := create(t, r, "pod", CreateOptions{Bundle: newBundle(t, nil)})
	one := create(t, r, "c1", CreateOptions{Bundle: newBundle(t, func(s *specs.Spec) {
		s.Annotations["io.kubernetes.cri-o.ContainerType"], s.Annotations["io.kubernetes.cri-o.SandboxID"] = "container", "pod"
	})})
	shim := files.ShimPID(t, r.dir("pod"))
	stopShim(t, shim)
	if err := r.Delete(t.Context(), "c1", true); err == nil || !strings.Contains(err.Error(), "c1") || !strings.Contains(err.Error(), "first container") {
		t.Errorf("the deletion of a container that runs: %v", err)
	}
	if err := r.Delete(t.Context(), "pod", true); err != nil {
		t.Error(err)
	}
	wantEnded(t, shim)
	if err := r.Delete(t.Context(), "c1", true); err != nil {
		t.Error(err)
	}
	for _, pid := range []int{pod, one} {
		if code := reap(t, pid); code != 137 {
			t.Errorf("exit code %d, want 137", code)
		}
	}
}

// The program is called even if the shim has used up all the time.
func TestProgramHasItsOwnTime(t *testing.T) {
	r := newRuntime(t)
	nameProgram(t, r)
	pid := create(t, r, "c1", CreateOptions{Bundle: newBundle(t, nil)})
	shim, err := client.Connect(t.Context(), r.dir("c1"))
	if err != nil {
		t.Fatal(err)
	}
	defer shim.Close()
	daemon := files.ShimPID(t, r.dir("c1"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.destroy(ended, shim, "c1"); err != nil {
		t.Error(err)
	}
	wantEnded(t, daemon)
	if code := reap(t, pid); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
	if err := r.Delete(t.Context(), "c1", true); err != nil {
		t.Error(err)
	}
}

// nameProgram gives the shim's program its usual name: "delete" kills no process
// of another.
func nameProgram(t *testing.T, r *Runtime) {
	t.Helper()
	named := filepath.Join(t.TempDir(), client.ShimName)
	err := os.Link(r.Program, named)
	if errors.Is(err, unix.EXDEV) {
		var data []byte
		if data, err = os.ReadFile(r.Program); err == nil {
			err = os.WriteFile(named, data, 0o700)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	r.Program = named
}

// stopShim stops a shim, and waits until each of its threads has stopped: until one has
// handled the signal the others go on, and may answer.
func stopShim(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(stats) == 0 {
		t.Fatalf("threads of process %d: %v, %v", pid, stats, err)
	}
	deadline := time.Now().Add(patience)
	for _, stat := range stats {
		for data, err := os.ReadFile(stat); err == nil && !strings.Contains(string(data), ") T "); data, err = os.ReadFile(stat) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %s", stat, data)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// wantEnded fails the test, and ends the shim, if it still runs.
func wantEnded(t *testing.T, pid int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("shim %d still runs", pid)
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}
