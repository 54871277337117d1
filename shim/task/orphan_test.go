package task

import (
	"context"
	"slices"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers"
)

// startedLate is an exec whose start comes between Kill and Forget.
type startedLate struct{ calls []string }

func (*startedLate) IsExec() bool { return true }

func (p *startedLate) Kill(context.Context, uint32, bool) error {
	p.calls = append(p.calls, "kill")
	if len(p.calls) == 1 {
		return errdefs.ErrFailedPrecondition // it is not started
	}
	return nil
}

func (p *startedLate) Wait(context.Context) (virtcontainers.Exit, error) {
	p.calls = append(p.calls, "wait")
	return virtcontainers.Exit{}, nil
}

func (p *startedLate) Forget() error {
	p.calls = append(p.calls, "forget")
	if !slices.Contains(p.calls, "wait") {
		return errdefs.ErrFailedPrecondition // it runs
	}
	return nil
}

// An exec that is started just when it was found unstarted does not outlive its owner.
func TestOrphanThatIsStarted(t *testing.T) {
	p := new(startedLate)
	err := killOrphan(t.Context(), p)
	if want := []string{"kill", "forget", "kill", "wait", "forget"}; err != nil || !slices.Equal(p.calls, want) {
		t.Errorf("%v, %v; want %v", p.calls, err, want)
	}
}
