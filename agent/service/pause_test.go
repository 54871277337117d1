package service

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

// A container that is paused when the host does not wait for it any more is thawed, and
// can be paused and resumed again.
func TestPauseForNoHost(t *testing.T) {
	pod, runtime := testPod(t)
	startContainer(t, pod, "c")
	ctx, giveUp := context.WithCancel(t.Context())
	runtime.last.onPause = giveUp
	if err := pod.pause(ctx, "c"); !errors.Is(err, context.Canceled) {
		t.Errorf("pause: %v", err)
	}
	if want := []string{"start", "pause", "resume"}; !slices.Equal(runtime.last.calls, want) {
		t.Errorf("calls %v, want %v", runtime.last.calls, want)
	}
	runtime.last.onPause = nil
	if err := errors.Join(pod.pause(t.Context(), "c"), pod.resume(t.Context(), "c")); err != nil {
		t.Error(err)
	}
}

// A resume waits for the pause that is under way, which the host has given up.
func TestResumeDuringPause(t *testing.T) {
	pod, runtime := testPod(t)
	startContainer(t, pod, "c")
	begun, held := make(chan struct{}), make(chan struct{})
	runtime.last.onPause = func() { close(begun); <-held }
	paused, resumed := make(chan error, 1), make(chan error, 1)
	go func() { paused <- pod.pause(t.Context(), "c") }()
	<-begun
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := pod.resume(soon, "c"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a resume that gives up: %v", err)
	}
	go func() { resumed <- pod.resume(t.Context(), "c") }()
	select {
	case err := <-resumed:
		t.Errorf("resumed while it is being paused: %v", err)
		resumed <- err
	case <-time.After(20 * time.Millisecond):
	}
	close(held)
	if err := errors.Join(<-paused, <-resumed); err != nil {
		t.Error(err)
	}
	if err := pod.resume(t.Context(), "c"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("resumed twice: %v", err)
	}
}
