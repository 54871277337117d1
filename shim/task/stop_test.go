package task_test

import (
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// A Create or Boot that comes while the shim ends makes no machine: the process would
// end without tearing it down.
func TestCreateAfterStop(t *testing.T) {
	s := newShim(t, nil)
	if err := s.service.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := s.Create(t.Context(), s.request(t, sandboxID))
	wantError(t, "create", err, errdefs.IsUnavailable, "the shim is ending")
	if _, err := s.service.Boot(t.Context(), virtcontainers.Options{Config: fakeguest.Config()}); !errdefs.IsUnavailable(err) {
		t.Errorf("boot: %v", err)
	}
	if calls := s.host.Agent.Calls(); len(calls) > 0 {
		t.Errorf("a machine was made: %v", calls)
	}
}
