package chaos

import (
	"context"
	"fmt"
	"sync"
)

// gate is what the requests to a file system pass, unless it hangs.
type gate struct {
	// held receives a value when a request waits at the gate.
	held chan struct{}
	// mu guards shut, which is nil while requests are answered.
	mu   sync.Mutex
	shut chan struct{}
}

func newGate() *gate { return &gate{held: make(chan struct{}, 1)} }

func (g *gate) hang() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = make(chan struct{})
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

// pass waits while the file system hangs, regardless of interrupts.
func (g *gate) pass() {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut == nil {
		return
	}
	select {
	case g.held <- struct{}{}:
	default:
	}
	<-shut
}

// awaitHeld waits until a request hangs.
func (g *gate) awaitHeld(ctx context.Context) error {
	select {
	case <-g.held:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for a request to the file system that hangs: %w", context.Cause(ctx))
	}
}
