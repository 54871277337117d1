package virtcontainers_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/katabox/katabox/hypervisor/fake"
)

// A machine whose memory was given back to the host in part, and not more, gets that
// again, and runs on.
func TestMemoryGivenBackInPart(t *testing.T) {
	s := newSleeper(t)
	var tried atomic.Int32
	s.host.Monitor.Hook(fake.StepDiscard, func(context.Context, *fake.VM) error {
		tried.Add(1)
		return errInjected
	})
	if _, err := s.Hibernate(t.Context()); !errors.Is(err, errInjected) || tried.Load() != 1 {
		t.Errorf("error %v after %d tries", err, tried.Load())
	}
	s.checkAwake()
	s.host.Monitor.Hook(fake.StepDiscard, nil)
	s.sleeps()
	if err := s.Wake(t.Context()); err != nil {
		t.Error(err)
	}
	s.checkAwake()
}
