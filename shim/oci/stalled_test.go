package oci

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stalls makes a running container whose output's reader reads nothing, and returns its
// monitor's pid. The monitor holds output that it cannot pass on.
func stalls(t *testing.T, r *Runtime, id string) (pid int) {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	t.Cleanup(func() { _ = out.Close() })
	saved := os.Stdout
	os.Stdout = in
	pid = create(t, r, id, CreateOptions{Bundle: newBundle(t, nil)})
	os.Stdout = saved
	if err := r.Start(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	const monitorsStdout = 5 // the end of the FIFO that it has inherited
	fifo, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", pid, monitorsStdout), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer fifo.Close()
	if err := fifo.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := fifo.Write(make([]byte, 1<<20)); err == nil {
		t.Fatalf("%d bytes were read", n)
	}
	return pid
}

// A container that a signal has ended ends for the engine, too, although its output
// is not read: with runc its process is gone.
func TestKilledWithAStalledReader(t *testing.T) {
	r := newRuntime(t)
	pid := stalls(t, r, "c1")
	if err := r.Kill(t.Context(), "c1", 9, false); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, r, "c1", Stopped)
	if err := r.Kill(t.Context(), "c1", 9, false); err != nil {
		t.Errorf("killed again, while its pid is there: %v", err)
	}
	if code := reap(t, pid); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
	if err := r.Kill(t.Context(), "c1", 9, false); err == nil || !strings.Contains(err.Error(), "container not running") {
		t.Errorf("killed after its end: %v", err)
	}
	if err := r.Delete(t.Context(), "c1", false); err != nil {
		t.Error(err)
	}
}

// No monitor outlives its container, also if the reader of its output has stalled.
func TestDeletedWithAStalledReader(t *testing.T) {
	for _, dead := range []bool{false, true} {
		r := newRuntime(t)
		pid := stalls(t, r, "c1")
		if dead {
			if err := unix.Kill(shimPID(t, r, "c1"), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Delete(t.Context(), "c1", true); err != nil {
			t.Error(err)
		}
		var status unix.WaitStatus
		if got, err := unix.Wait4(pid, &status, unix.WNOHANG, nil); err != nil || got != pid {
			t.Errorf("its shim is dead: %t: its monitor runs, %v", dead, err)
			_ = unix.Kill(pid, unix.SIGKILL)
			reap(t, pid)
		}
	}
}
