package service

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

// A container that is made when the host does not wait for it any more is removed, and
// a call that waits for it ends.
func TestCreateForNoHost(t *testing.T) {
	pod, runtime := testPod(t)
	ctx, giveUp := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	runtime.onCreate = func() {
		_, init, err := pod.process("c", "")
		if err != nil {
			t.Error(err)
			return
		}
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := init.wait(ctx)
			waited <- err
		}()
		giveUp()
	}
	if _, err := pod.create(ctx, createRequest(t, "c")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, _, err := pod.process("c", ""); !errdefs.IsNotFound(err) {
		t.Errorf("it is there: %v", err)
	}
	if runtime.last.destroyed != 1 {
		t.Errorf("destroyed %d times", runtime.last.destroyed)
	}
	if err := <-waited; err != nil {
		t.Errorf("wait: %v", err)
	}
}
