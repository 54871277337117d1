package oci

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/shimtest"
	"github.com/katabox/katabox/shim/shimtest/files"
)

// runInto makes a running container whose output goes to the pipe out, and returns its
// monitor's pid.
func runInto(t *testing.T, r *Runtime, id string) (pid int, out *os.File) {
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
	return pid, out
}

// stalls makes a running container whose output's reader reads nothing, and returns its
// monitor's pid. The monitor holds output that it cannot pass on.
func stalls(t *testing.T, r *Runtime, id string) int {
	t.Helper()
	pid, _ := runInto(t, r, id)
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

// endsInto makes a container that has written a number of bytes to the pipe out and then
// exited by itself, and returns its monitor's pid.
func endsInto(t *testing.T, r *Runtime, id string, bytes int) (pid int, out *os.File) {
	t.Helper()
	ended := shimtest.EndsItself(t, bytes)
	pid, out = runInto(t, r, id)
	if err := r.Kill(t.Context(), id, shimtest.EndSignal, false); err != nil {
		t.Fatal(err)
	}
	ended()
	return pid, out
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
			if err := unix.Kill(files.ShimPID(t, r.dir("c1")), unix.SIGKILL); err != nil {
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

// A container that has exited by itself, with more output than the pipes to its reader
// hold, still runs to its engine. One SIGKILL ends it.
func TestKilledWhileItsExitIsHeld(t *testing.T) {
	r := newRuntime(t)
	pid, _ := endsInto(t, r, "c1", 400<<10)
	if err := r.Kill(t.Context(), "c1", 9, false); err != nil {
		t.Fatal(err)
	}
	if code := reap(t, pid); code != shimtest.EndCode {
		t.Errorf("exit code %d, want %d", code, shimtest.EndCode)
	}
	if err := r.Delete(t.Context(), "c1", false); err != nil {
		t.Error(err)
	}
}

// The exit code of a container that has exited by itself stays its own, also if its
// shim has ended before its monitor.
func TestDeletedAfterItsExit(t *testing.T) {
	r := newRuntime(t)
	pid, _ := endsInto(t, r, "c1", 100<<10)
	wantStatus(t, r, "c1", Stopped)
	if err := r.Delete(t.Context(), "c1", false); err != nil {
		t.Fatal(err)
	}
	if code := reap(t, pid); code != shimtest.EndCode {
		t.Errorf("exit code %d, want %d", code, shimtest.EndCode)
	}
}

// A reader that reads on while the container is deleted gets all output.
func TestDeletedWithASlowReader(t *testing.T) {
	const size = 160 << 10
	r := newRuntime(t)
	pid, out := endsInto(t, r, "c1", size)
	wantStatus(t, r, "c1", Stopped)
	read := make(chan int)
	go func() {
		sum, block := 0, make([]byte, 8<<10)
		for ; ; time.Sleep(400 * time.Millisecond) { // altogether much longer than a reader may stall
			n, err := out.Read(block)
			sum += n
			if err != nil {
				break
			}
		}
		read <- sum
	}()
	if err := r.Delete(t.Context(), "c1", false); err != nil {
		t.Fatal(err)
	}
	if sum := <-read; sum != size {
		t.Errorf("%d bytes of %d came", sum, size)
	}
	if code := reap(t, pid); code != shimtest.EndCode {
		t.Errorf("exit code %d, want %d", code, shimtest.EndCode)
	}
}
