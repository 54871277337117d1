package virtcontainers

import (
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
)

func TestStates(t *testing.T) {
	all := []State{Created, starting, Running, Paused, Stopped, Deleted}
	legal := map[string]bool{
		"created being started": true, "created stopped": true,
		"being started running": true, "being started created": true, "being started stopped": true,
		"running paused": true, "running stopped": true,
		"paused running": true, "paused stopped": true, "stopped deleted": true,
	}
	for _, from := range all {
		for _, to := range all {
			got, err := from.next(to)
			if legal[fmt.Sprintf("%s %s", from, to)] {
				if err != nil || got != to {
					t.Errorf("%s to %s: %s, %v", from, to, got, err)
				}
			} else if !errdefs.IsFailedPrecondition(err) || got != from {
				t.Errorf("%s to %s: %s, %v", from, to, got, err)
			}
		}
	}
	if got := State(9).String(); got != "State(9)" {
		t.Errorf("an unknown state is %q", got)
	}
}

func TestEngineSeesNoStarting(t *testing.T) {
	for _, s := range []State{Created, Running, Paused, Stopped, Deleted} {
		if got := s.seen(); got != s {
			t.Errorf("%s is seen as %s", s, got)
		}
	}
	if got := starting.seen(); got != Created {
		t.Errorf("a process that is being started is seen as %s, want created", got)
	}
}
