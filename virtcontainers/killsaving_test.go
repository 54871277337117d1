package virtcontainers_test

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/fake"
)

// SIGKILL ends the saving of the container that gets it, and then the container.
func TestKillEndsCheckpoint(t *testing.T) {
	s := newSaver(t)
	s.says("before ")
	hanging := s.hangs(fake.StepSaveAll)
	killed := make(chan error, 1)
	go func() {
		<-hanging
		killed <- initOf(t, s.c).Kill(context.Background(), uint32(unix.SIGKILL), true)
	}()
	s.checkFails(t.Context(), false, "got SIGKILL")
	if err := await(t, "the kill's end", killed); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.awaitStopped()
	s.observer.expect(t, "pod=137")
	s.checkHeard()
}

// SIGKILL does not wait for a guest that does not freeze the container.
func TestKillEndsFreezing(t *testing.T) {
	s := newSaver(t)
	s.says("before ")
	hanging := s.host.Agent.Hang("Pause")
	killed := make(chan error, 1)
	go func() {
		<-hanging
		killed <- initOf(t, s.c).Kill(context.Background(), uint32(unix.SIGKILL), true)
	}()
	s.checkFails(t.Context(), false, "got SIGKILL")
	if err := await(t, "the kill's end", killed); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.awaitStopped()
	s.observer.expect(t, "pod=137")
}
