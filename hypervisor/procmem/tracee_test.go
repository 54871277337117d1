package procmem

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/ownthread"
)

// A thread that gets signals all the time is given up, and then gets some of them
// and goes on.
func TestFloodOfSignals(t *testing.T) {
	p := start(t)
	threads, err := waiting(p.Process.Pid)
	must(t, err)
	tid := threads[len(threads)-1]
	done := make(chan struct{})
	ownthread.Go(func() {
		defer close(done)
		thread, err := seize(p.Process.Pid, tid, time.Now().Add(time.Minute))
		if err != nil {
			t.Error(err)
			return
		}
		for range maxSignals { // a signal that the Go runtime sends to its threads
			thread.signals = append(thread.signals, unix.SIGURG)
		}
		if err := unix.Tgkill(p.Process.Pid, tid, unix.SIGURG); err != nil {
			t.Error(err)
		}
		if err := unix.PtraceCont(tid, 0); err != nil {
			t.Error(err)
		}
		failsWith(t, thread.await(func(unix.WaitStatus) bool { return false }, unix.PtraceCont), "it got 64 signals")
		if err := thread.release(); err != nil {
			t.Error(err)
		}
	})
	<-done
	p.is(t, "changed")
}

// A process lives if its thread is in the call for longer than it may be traced before.
func TestSlowCall(t *testing.T) {
	pid := singleThreaded(t)
	const slow = traceTime + 100*time.Millisecond
	done := make(chan struct{})
	ownthread.Go(func() {
		defer close(done)
		ret, err := callIn(pid, pid, time.Now().Add(traceTime), unix.SYS_POLL, 0, 0, uint64(slow.Milliseconds()))
		if err != nil || ret != 0 {
			t.Errorf("the call returned %d, %v", ret, err)
		}
	})
	<-done
	awaitSleep(t, pid)
}

// The signals that a thread gets while it is traced come to it afterwards.
func TestSignalsComeLate(t *testing.T) {
	pid := singleThreaded(t)
	done := make(chan struct{})
	ownthread.Go(func() {
		defer close(done)
		thread, err := seize(pid, pid, time.Now().Add(time.Minute))
		if err != nil {
			t.Error(err)
			return
		}
		if err := unix.Kill(pid, unix.SIGTERM); err != nil {
			t.Error(err)
		}
		ret, err := thread.call(unix.SYS_GETPID, 0, 0, 0)
		if err != nil || ret != int64(pid) {
			t.Errorf("the call returned %d, %v, want %d", ret, err, pid)
		}
		if err := thread.release(); err != nil {
			t.Error(err)
		}
	})
	<-done
	process, err := os.FindProcess(pid)
	must(t, err)
	state, err := process.Wait()
	must(t, err)
	if got := state.String(); got != "signal: terminated" {
		t.Errorf("it ended with %q", got)
	}
}
