package oci

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/client"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// A forced delete succeeds although the shim was stopped: its program ends it.
func TestDeleteWithAStoppedShim(t *testing.T) {
	r := newRuntime(t)
	r.answerTimeout = 2 * time.Second
	pid := create(t, r, "c1", CreateOptions{Bundle: newBundle(t, nil)})
	if err := r.Start(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	shim := shimPID(t, r, "c1")
	if err := unix.Kill(shim, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Kill(shim, unix.SIGCONT) }() // if it is still there
	begin := time.Now()
	if err := r.Delete(t.Context(), "c1", true); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > patience {
		t.Errorf("it took %v", took)
	}
	if code := reap(t, pid); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
}

// The program is called even if the shim has used up all the time.
func TestProgramHasItsOwnTime(t *testing.T) {
	r := newRuntime(t)
	pid := create(t, r, "c1", CreateOptions{Bundle: newBundle(t, nil)})
	shim, err := client.Connect(t.Context(), r.dir("c1"))
	if err != nil {
		t.Fatal(err)
	}
	defer shim.Close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.destroy(ended, shim, "c1"); err != nil {
		t.Error(err)
	}
	if code := reap(t, pid); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
	if err := r.Delete(t.Context(), "c1", true); err != nil {
		t.Error(err)
	}
}

func shimPID(t *testing.T, r *Runtime, id string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir(id), bundle.PIDFile))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(data))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}
