package virtcontainers_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers"
)

// ledger records what the engine was told: for which processes an exit is due.
type ledger struct {
	mu  sync.Mutex // guards due
	due map[string]bool
}

func (l *ledger) owe(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due[name] = true
}

// worker does what an engine might, in any order, to its own container.
type worker struct {
	p      *pod
	id     string
	random *rand.Rand
	ledger *ledger
}

// live is one container's life; errors are ignored, because the sandbox may end
// at any moment.
func (w *worker) live(ctx context.Context, round int) {
	id := fmt.Sprintf("%s-%d", w.id, round)
	c, err := w.p.Create(ctx, w.p.options(id, nil), func(*virtcontainers.Container) { w.ledger.owe(id) })
	if err != nil {
		return
	}
	init, err := c.Process("")
	if err != nil {
		w.p.t.Error(err)
		return
	}
	if w.random.IntN(4) > 0 {
		_ = init.Start(ctx, ignore)
	}
	for i := range w.random.IntN(3) {
		w.exec(ctx, c, fmt.Sprintf("e%d", i))
	}
	if w.random.IntN(2) > 0 {
		_ = w.p.host.Agent.Exit(id, "", uint32(w.random.IntN(256)))
	} else {
		_ = init.Kill(ctx, 9, true)
	}
	if w.random.IntN(4) > 0 {
		w.remove(ctx, c)
	}
}

func (w *worker) exec(ctx context.Context, c *virtcontainers.Container, id string) {
	e, err := c.Exec(ctx, virtcontainers.ExecOptions{ID: id, IO: newIO(virtcontainers.Streams{Stdout: true})})
	if err != nil || w.random.IntN(4) == 0 {
		return
	}
	_ = e.Start(ctx, func(virtcontainers.ProcessInfo) { w.ledger.owe(c.ID + "/" + id) })
	if w.random.IntN(2) > 0 {
		_ = e.Kill(ctx, 15, false)
	}
}

// remove deletes a container that is ending: that must always succeed.
func (w *worker) remove(ctx context.Context, c *virtcontainers.Container) {
	init, err := c.Process("")
	if err == nil {
		_, err = init.Wait(ctx)
	}
	if err == nil {
		_, err = c.Delete(ctx)
	}
	if err != nil {
		w.p.t.Errorf("delete %s: %v", c.ID, err)
	}
}

// Engines make calls in any order, and the sandbox ends in the middle: each
// process that was announced exits once, no other does, and nothing is left.
func TestStorm(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*pod){
		"Stop":            func(p *pod) { _ = p.Stop(context.Background()) },
		"machine dies":    func(p *pod) { p.host.VM().Die(errDied) },
		"events end":      func(p *pod) { p.host.Agent.EndEvents() },
		"pod's init ends": func(p *pod) { _ = p.host.Agent.Exit(sandboxID, "", 0) },
	}
	for name, end := range ends {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("%s %d", name, seed), func(t *testing.T) { storm(t, seed, end) })
		}
	}
}

func storm(t *testing.T, seed uint64, end func(*pod)) {
	p := newPod(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l := &ledger{due: make(map[string]bool)}
	if _, err := p.Create(ctx, p.options(sandboxID, nil), func(*virtcontainers.Container) { l.owe(sandboxID) }); err != nil {
		t.Fatal(err)
	}
	const workers, rounds = 4, 5
	var wg sync.WaitGroup
	half := make(chan struct{}, workers*rounds)
	for i := range workers {
		w := &worker{p: p, id: fmt.Sprintf("w%d", i), random: rand.New(rand.NewPCG(seed, uint64(i))), ledger: l}
		wg.Go(func() {
			for round := range rounds {
				w.live(ctx, round)
				half <- struct{}{}
			}
		})
	}
	for range 2 * int(seed) * workers { // at the beginning, or in the middle
		<-half
	}
	end(p)
	wg.Wait()
	p.awaitStopped()
	p.settleAccounts(l)
	for _, c := range p.Containers() {
		if _, err := c.Delete(ctx); err != nil && !errdefs.IsFailedPrecondition(err) {
			t.Errorf("delete %s: %v", c.ID, err)
		}
	}
	if !p.Empty() {
		t.Error("the sandbox is not empty")
	}
	checkNothingLeft(t, p.host)
}

// settleAccounts compares the exits with what is due. An exec's exit is due
// only if its start was announced.
func (p *pod) settleAccounts(l *ledger) {
	p.t.Helper()
	seen := make(map[string]int)
	p.observer.mu.Lock()
	for _, e := range p.observer.exits {
		name := e.ContainerID
		if e.ExecID != "" {
			name += "/" + e.ExecID
		}
		seen[name]++
	}
	p.observer.mu.Unlock()
	for name := range l.due {
		if seen[name] != 1 {
			p.t.Errorf("%s exited %d times", name, seen[name])
		}
	}
	for name := range seen {
		if !l.due[name] {
			p.t.Errorf("%s exited and was never announced", name)
		}
	}
}
