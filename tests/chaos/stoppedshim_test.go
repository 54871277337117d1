package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// A shim that is stopped makes the engine's calls for its pod wait, as runc's
// does. What ends that is the shim's death, or containerd's restart: it then finds
// a shim that does not answer, and its "delete" kills it. The pod can be removed
// after either, and a pod beside it does not notice.
func TestStoppedShim(t *testing.T) {
	for name, end := range map[string]func(context.Context, *testing.T, *harness.Daemon, []harness.Proc){
		"killed": killShims, "containerd restarts": restartEngine,
	} {
		t.Run(name, func(t *testing.T) {
			eachRelease(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
				exits := record(ctx, d)
				t.Cleanup(exits.stop)
				pod, c, shims, other := podAndNeighbour(ctx, t, d, harness.KindShim)
				if err := signalAll(shims, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				// Should the test fail before end does this, nothing else would.
				t.Cleanup(func() { _ = signalAll(stillStopped(d, shims), syscall.SIGKILL) })
				waits(ctx, t, c)
				works(ctx, t, other, "echo y", "y\n")
				end(ctx, t, d, shims)
				waitCtx, cancel := context.WithTimeout(ctx, removeTimeout)
				defer cancel()
				if code, err := c.Wait(waitCtx); waitCtx.Err() != nil || err == nil && code != killed {
					t.Errorf("the container's Wait: code %d, %v; want %d or an error within %v", code, err, killed, removeTimeout)
				}
				removable(ctx, t, pod, other)
				if name == "killed" { // else they are reported before containerd takes subscriptions
					reportedOnce(ctx, t, exits, c)
					reportedOnce(ctx, t, exits, pod.Sandbox)
				}
				for _, box := range []*harness.Container{c, pod.Sandbox} {
					if codes := exits.codes(box.Box.ID(), box.Box.ID()); len(codes) > 1 {
						t.Errorf("%s: exit events with the codes %v, want one", box.Box.ID(), codes)
					}
				}
			})
		})
	}
}

// waits checks that a call for a container has no answer before its caller gives
// up.
func waits(ctx context.Context, t *testing.T, c *harness.Container) {
	t.Helper()
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	// containerd has the same deadline, and may notice it a moment earlier.
	if err := c.Kill(ctx, syscall.SIGKILL); err == nil || time.Since(began) < patience*3/4 {
		t.Errorf("a kill through a stopped shim: %v after %v, want no answer", err, time.Since(began))
	}
}

// stillStopped returns those of the processes that are still there, and stopped.
func stillStopped(d *harness.Daemon, procs []harness.Proc) []harness.Proc {
	now, err := d.Processes()
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(now, func(p harness.Proc) bool {
		return p.State != 'T' || !slices.ContainsFunc(procs, func(was harness.Proc) bool { return was.PID == p.PID })
	})
}

// killShims kills the stopped shims, as an operator would.
func killShims(_ context.Context, t *testing.T, _ *harness.Daemon, shims []harness.Proc) {
	t.Helper()
	if err := signalAll(shims, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// restartEngine restarts containerd, and checks that the stopped shims and their
// children end.
func restartEngine(ctx context.Context, t *testing.T, d *harness.Daemon, shims []harness.Proc) {
	t.Helper()
	before, err := d.Processes()
	if err != nil {
		t.Fatal(err)
	}
	doomed := slices.DeleteFunc(before, func(p harness.Proc) bool {
		return !slices.ContainsFunc(shims, func(s harness.Proc) bool { return p.PID == s.PID || p.PPID == s.PID })
	})
	began := time.Now()
	if err := errors.Join(d.Restart(ctx), d.Client.Reconnect()); err != nil {
		t.Fatal(err)
	}
	if err := awaitEnds(d, doomed, removeTimeout-time.Since(began)); err != nil {
		t.Error(err)
	}
}

// awaitEnds waits until the processes have ended.
func awaitEnds(d *harness.Daemon, procs []harness.Proc, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		now, err := d.Processes()
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(now, func(p harness.Proc) bool {
			return !slices.ContainsFunc(procs, func(was harness.Proc) bool { return was.PID == p.PID })
		})
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("still there %v after containerd's restart: %v", removeTimeout, left)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
