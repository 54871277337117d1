package hostile

import (
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// maxLog bounds what a flood may add to the engine's log, in bytes.
const maxLog = 4 << 20

// minTold is the least number of messages that makes the flood a valid test.
const minTold = 200

// A guest that sends endlessly fills neither the host's memory nor its logs,
// and does not affect other pods.
func TestFloods(t *testing.T) {
	for _, lie := range []string{"flood-events", "flood-log", "flood-console", "connections"} {
		t.Run(lie, func(t *testing.T) {
			ctx, d := lying(t, lie, "")
			works := neighbour(ctx, t)
			mark := d.LogSize()
			p := newPod(ctx, t, d)
			for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
				works()
			}
			if n := p.told(ctx); n < minTold {
				t.Errorf("the lie was told %d times, want at least %d", n, minTold)
			}
			p.alive()
			p.smallShim()
			if size := d.LogSize() - mark; size > maxLog {
				t.Errorf("the log grew by %d KiB, want at most %d", size>>10, maxLog>>10)
			}
			p.remove(ctx)
		})
	}
}

// Answers of the transport's maximum size cost no more memory than their size.
func TestHugeAnswers(t *testing.T) {
	calls := map[string]func(*testing.T, *pod){
		"huge-stats": func(t *testing.T, p *pod) {
			metrics, err := p.idle.Task.Metrics(p.daemon.Context(t.Context()))
			if err == nil && len(metrics.Data.GetValue()) > 1<<20 {
				t.Errorf("the engine got counters of %d bytes", len(metrics.Data.GetValue()))
			}
			t.Log(err)
		},
		"huge-pids": func(t *testing.T, p *pod) {
			const most = 1 + 8192 // the container's process on the host, and the guest's
			list, err := p.idle.Task.Pids(p.daemon.Context(t.Context()))
			if err != nil || len(list) != most {
				t.Errorf("%d processes, %v, want %d", len(list), err, most)
			}
			for _, process := range list {
				if process.Info != nil {
					t.Fatalf("the engine got the guest's details of process %d", process.Pid)
				}
			}
		},
		"huge-errors": func(t *testing.T, p *pod) {
			_, err := p.idle.Exec(p.daemon.Context(t.Context()), harness.ExecConfig{Args: []string{"true"}})
			if err == nil || len(err.Error()) > 32<<10 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		},
	}
	for lie, call := range calls {
		t.Run(lie, func(t *testing.T) {
			ctx, d := lying(t, lie, "")
			p := newPod(ctx, t, d)
			for range 3 {
				call(t, p)
			}
			p.alive()
			p.smallShim()
			p.remove(ctx)
		})
	}
}
