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

// wholeTimeout bounds a flood that runs to its end.
const wholeTimeout = 40 * time.Minute

// A guest that sends endlessly fills neither the host's memory nor its logs,
// and does not affect other pods.
func TestFloods(t *testing.T) {
	for lie, end := range map[string]int{"flood-events": 1_000_000, "flood-log": 0, "log-lines": 0, "flood-console": 0, "connections": 100_000} {
		t.Run(lie, func(t *testing.T) {
			least, whole := floodTime(t)
			ctx, g := lyingFor(t, lie, wholeTimeout)
			works := neighbour(ctx, t)
			m := measured{before: atRest(works), logMark: g.LogSize()}
			p := newPod(ctx, t, g)
			told, want := 0, minTold
			if whole {
				want = max(end, minTold)
			}
			begin := time.Now()
			for time.Since(begin) < least || told < want && ctx.Err() == nil {
				if m.sample(t, p, works); t.Failed() {
					break
				}
				told = p.told(ctx)
				if !whole && time.Since(begin) > least+answerTimeout {
					break
				}
			}
			if told < want {
				t.Errorf("the lie was told %d times, want at least %d", told, want)
			}
			p.alive()
			m.check(t, p, told)
			p.smallShim()
			t.Logf("it took %v", time.Since(begin).Round(time.Second))
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
			ctx, g := lying(t, lie)
			p := newPod(ctx, t, g)
			for range 3 {
				call(t, p)
			}
			p.alive()
			p.smallShim()
			p.remove(ctx)
		})
	}
}
