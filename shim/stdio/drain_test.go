package stdio

import (
	"testing"
	"testing/synctest"
	"time"
)

// A guest that promises a huge total and sends a byte now and then does not delay
// an exit indefinitely.
func TestDrainHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &IO{phase: phaseConnected, out: newOutput(false), err: newOutput(false)}
		ended := make(chan struct{})
		go func() {
			for {
				select {
				case <-ended:
					return
				case <-time.After(stalled - time.Millisecond):
					i.out.add(1)
					i.err.add(1)
				}
			}
		}()
		start := time.Now()
		i.Drain(t.Context(), 1<<40, 1<<40)
		if took := time.Since(start); took != drainLimit {
			t.Errorf("Drain took %v, want %v", took, drainLimit)
		}
		close(ended)
	})
}
