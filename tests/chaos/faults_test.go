package chaos

import (
	"context"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// eachRelease runs a test with every release; after it nothing may be left.
func eachRelease(t *testing.T, run func(context.Context, *testing.T, *harness.Daemon)) {
	t.Helper()
	for turn, release := range bed.releases {
		if testing.Short() && turn > 0 {
			break
		}
		t.Run(release.Name, func(t *testing.T) {
			d := daemon(t, turn)
			run(within(t, d), t, d)
		})
	}
}

// newScene opens a pod with an idle service that loses the victim.
func newScene(ctx context.Context, t *testing.T, d *harness.Daemon, v victim) (*scene, *harness.Container) {
	t.Helper()
	s := &scene{t: t, d: d, victim: v, random: rand.New(rand.NewPCG(bed.seed, 0)), tape: record(ctx, d)}
	t.Cleanup(s.tape.stop)
	if err := s.openPod(ctx); err != nil {
		t.Fatal(err)
	}
	c, err := s.service(ctx, idle)
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// lostLine returns the only line in which the shim logs that it lost a sandbox.
func lostLine(ctx context.Context, t *testing.T, d *harness.Daemon, mark int64) string {
	t.Helper()
	const word = "sandbox lost"
	lines := logLines(d, mark, word)
	for len(lines) == 0 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond) // containerd copies the shim's log
		lines = logLines(d, mark, word)
	}
	if len(lines) != 1 {
		t.Fatalf("%d lines say %q, want one: %q", len(lines), word, lines)
	}
	return lines[0]
}

// A hung guest closes no connection: the shim's health check detects it, and
// the waiters get 255.
func TestHang(t *testing.T) {
	eachRelease(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		configure(t, d, "", "health_check_interval = 1\nhealth_check_timeout = 3")
		mark := d.LogSize()
		hang := victim{name: "hang", takesVM: true, codes: []uint32{lostContact}, strike: func(_ context.Context, s *scene) error {
			return signalKind(s.d, harness.KindVMM, syscall.SIGSTOP)
		}}
		s, _ := newScene(ctx, t, d, hang)
		if err := s.strike(ctx); err != nil {
			t.Fatal(err)
		}
		s.judge(ctx)
		if line := lostLine(ctx, t, d, mark); !strings.Contains(line, "agent health check timed out after 3s") {
			t.Errorf("the log does not say what is wrong: %s", line)
		}
	})
}

// The console's output of a panicking guest kernel is in the log.
func TestGuestPanic(t *testing.T) {
	eachRelease(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		mark := d.LogSize()
		s, _ := newScene(ctx, t, d, kernel)
		if err := s.strike(ctx); err != nil {
			t.Fatal(err)
		}
		s.judge(ctx)
		if line := lostLine(ctx, t, d, mark); !strings.Contains(line, "Kernel panic - not syncing: sysrq triggered crash") {
			t.Errorf("the log does not hold the panic: %s", line)
		}
	})
}

// An agent whose code is overwritten dies, and the guest's kernel reports that
// its init is dead.
func TestAgentDies(t *testing.T) {
	eachRelease(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		mark := d.LogSize()
		s, _ := newScene(ctx, t, d, agent)
		if err := s.strike(ctx); err != nil {
			t.Fatal(err)
		}
		s.judge(ctx)
		if line := lostLine(ctx, t, d, mark); !strings.Contains(line, "Attempted to kill init!") {
			t.Errorf("the log does not hold the agent's death: %s", line)
		}
	})
}

// Without an agent in the guest the create fails, and its error says why.
func TestNoAgent(t *testing.T) {
	eachRelease(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		configure(t, d, `kernel_params = "rdinit=/nothing"`, "")
		began := time.Now()
		pod, err := d.NewPod(ctx, "pod")
		if err == nil {
			t.Fatalf("there is a pod without an agent; removed: %v", pod.Remove(ctx))
		}
		if !strings.Contains(err.Error(), `the guest said "Kernel panic`) {
			t.Errorf("the error does not hold the guest's last words: %v", err)
		}
		if took := time.Since(began); took > answerTimeout {
			t.Errorf("the error came after %v: the machine's end was not noticed", took)
		}
	})
}

// QEMU and virtiofsd end with their shim even without a delete: containerd is
// stopped meanwhile.
func TestNobodyDeletes(t *testing.T) {
	eachRelease(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		s, _ := newScene(ctx, t, d, shim)
		pid, err := enginePID(d)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		err = s.strike(ctx)
		if e := syscall.Kill(pid, syscall.SIGCONT); e != nil {
			t.Fatal(e)
		}
		if err != nil {
			t.Error(err)
		}
		s.judge(ctx)
	})
}
