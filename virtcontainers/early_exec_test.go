package virtcontainers_test

import (
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers"
)

// An exec may run beside an init that still waits for its start, as with
// runc: its exit is its own.
func TestExecBeforeTheInitStarts(t *testing.T) {
	p := newPod(t)
	c := p.create(sandboxID)
	e := p.exec(c, "e1")
	p.start(e)
	p.exits(sandboxID, "e1", 7)
	if status := statusOf(t, e); status != 7 {
		t.Errorf("status %d, want 7", status)
	}
	if state := c.Info().State; state != virtcontainers.Created {
		t.Errorf("the container is %s, want created", state)
	}
	if err := e.Resize(t.Context(), 1, 1); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("resize of a stopped exec: %v", err)
	}
	if err := initOf(t, c).Resize(t.Context(), 1, 1); err != nil {
		t.Errorf("resize without a terminal: %v", err)
	}
}
