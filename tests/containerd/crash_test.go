package containerd

import (
	"context"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// busyPod is a pod with two running service containers, one of which has a
// running exec.
type busyPod struct {
	*harness.Pod
	exec *harness.Process
}

func newBusyPod(ctx context.Context, t *testing.T, d *harness.Daemon) busyPod {
	t.Helper()
	pod := newPod(ctx, t, d)
	idle(ctx, t, pod)
	p, err := idle(ctx, t, pod).Exec(ctx, harness.ExecConfig{Args: script("echo ready; sleep 1000")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removed(t, "exec", func(ctx context.Context) error { return p.Remove(d.Context(ctx)) }) })
	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.Out.Await(ctx, "ready"); err != nil {
		t.Fatal(err)
	}
	return busyPod{Pod: pod, exec: p}
}

// inits are the containers of the pod, pause included.
func (p busyPod) inits() []*harness.Container {
	return append([]*harness.Container{p.Sandbox}, p.Services...)
}

// killOne sends SIGKILL to the only process of a kind.
func killOne(t *testing.T, d *harness.Daemon, kind string) {
	t.Helper()
	if err := d.KillOne(kind); err != nil {
		t.Fatal(err)
	}
}

// exits returns the exit events of one container by the process's id.
func exits(r *harness.Recorder, id string) map[string][]uint32 {
	found := map[string][]uint32{}
	for _, e := range r.Of(id) {
		if e.Topic == "exit" {
			found[e.Exec] = append(found[e.Exec], e.Code)
		}
	}
	return found
}

// lostContact is the exit code of a process whose real exit is unknown.
const lostContact = 255

// The pod's VM dies: each waiter is woken, each process has one exit event, and
// removing the pod leaves nothing.
func TestKilledVMM(t *testing.T) {
	needVM(t)
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		recorder := d.Record(ctx)
		defer recorder.Close()
		pod := newBusyPod(ctx, t, d)
		killOne(t, d, harness.KindVMM)
		for _, c := range pod.inits() {
			wantCode(ctx, t, &c.Process, lostContact)
			if _, err := recorder.Await(ctx, c.Box.ID(), "exit"); err != nil {
				t.Error(err)
			}
		}
		wantCode(ctx, t, pod.exec, lostContact)
		removed(t, "pod", pod.Remove)
		for _, c := range pod.inits() {
			id := c.Box.ID()
			if _, err := recorder.Await(ctx, id, "delete"); err != nil {
				t.Error(err)
			}
			for process, codes := range exits(recorder, id) {
				if len(codes) != 1 || codes[0] != lostContact {
					t.Errorf("exit events of %s in %s: codes %v, want one %d", process, id, codes, lostContact)
				}
			}
		}
	})
}

// The pod's external file server dies: the same, because its containers have
// lost their root file systems.
func TestKilledVirtiofsd(t *testing.T) {
	needVM(t)
	newestOwn(t, withVirtiofsd(t), func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newBusyPod(ctx, t, d)
		killOne(t, d, harness.KindVirtiofsd)
		for _, c := range pod.inits() {
			wantCode(ctx, t, &c.Process, lostContact)
		}
	})
}

// killedByCleanup is the exit code that "shim delete" reports for what it had
// to kill.
const killedByCleanup = 137

// The shim dies: containerd calls "shim delete", which must find and end
// everything that the shim had started, and reports each container's exit once.
func TestKilledShim(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		recorder := d.Record(ctx)
		defer recorder.Close()
		pod := newBusyPod(ctx, t, d)
		killOne(t, d, harness.KindShim)
		for _, c := range pod.inits() {
			id := c.Box.ID()
			if _, err := recorder.Await(ctx, id, "exit"); err != nil {
				t.Error(err)
			}
			if _, err := recorder.Await(ctx, id, "delete"); err != nil {
				t.Error(err)
			}
			if codes := exits(recorder, id)[id]; len(codes) != 1 || codes[0] != killedByCleanup {
				t.Errorf("exit events of %s: codes %v, want one %d", id, codes, killedByCleanup)
			}
		}
	})
}
