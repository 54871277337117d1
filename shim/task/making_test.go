package task_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
)

// giveUp calls Create and gives the call up, as a client of an engine does, once the
// guest was asked for method. The guest answers when goOn is closed.
func (s *shim) giveUp(t *testing.T, id, method string) (goOn chan struct{}) {
	t.Helper()
	asked, goOn := make(chan struct{}), make(chan struct{})
	s.host.Agent.Hook(method, func(ctx context.Context, _ proto.Message) error {
		s.host.Agent.Hook(method, nil)
		close(asked)
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return nil
	})
	r := s.request(t, id)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := s.Create(ctx, r)
		failed <- err
	}()
	<-asked
	cancel()
	if err := <-failed; err == nil {
		t.Fatal("the create succeeded")
	}
	return goOn
}

// checkForgotten checks that the shim answers a Delete like one for a container that
// does not exist, and then has the containers want, in any order.
func (s *shim) checkForgotten(t *testing.T, id string, goOn chan struct{}, want ...string) {
	t.Helper()
	_, err := s.Delete(t.Context(), &taskapi.DeleteRequest{ID: id})
	wantError(t, "delete", err, errdefs.IsNotFound, id)
	close(goOn)
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) { // a creation that was not ended succeeds meanwhile
		if ids := s.service.ContainerIDs(); !slices.Equal(ids, want) {
			t.Fatalf("the shim has %v, want %v", ids, want)
		}
	}
	if list := s.events.list(); slices.Contains(list, "create "+id) {
		t.Errorf("events %v", list)
	}
}

// containerd calls Delete when its client gives up a Create, whose end the shim would
// not learn of: it ends the creation.
func TestDeleteEndsACreate(t *testing.T) {
	s := newShim(t, nil)
	s.run(t, sandboxID)
	goOn := s.giveUp(t, "c1", "Create")
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.service.Delete(soon, &taskapi.DeleteRequest{ID: "c1"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a delete without time: %v", err)
	}
	s.checkForgotten(t, "c1", goOn, sandboxID)
}

// The same holds for the container that boots the sandbox, and its shim can end then.
func TestDeleteEndsABoot(t *testing.T) {
	s := newShim(t, nil)
	goOn := s.giveUp(t, sandboxID, "SetupSandbox")
	s.checkForgotten(t, sandboxID, goOn)
	if left, err := s.host.Leftovers(); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := s.Shutdown(t.Context(), &taskapi.ShutdownRequest{ID: sandboxID}); err != nil {
		t.Error(err)
	}
	if n := s.exits.Load(); n != 1 {
		t.Errorf("the shim has ended %d times, want once", n)
	}
}

// A container whose bundle is gone keeps its shim no longer than the sandbox: its engine
// does not know it, and will not delete it.
func TestUnknownContainerDoesNotKeepTheShim(t *testing.T) {
	s := newShim(t, nil)
	s.run(t, sandboxID)
	s.run(t, "c1")
	gone := s.request(t, "c1").Bundle
	check := func(when string, exits int32, ids ...string) {
		t.Helper()
		if _, err := s.Shutdown(t.Context(), &taskapi.ShutdownRequest{ID: sandboxID}); err != nil {
			t.Error(err)
		}
		got := s.service.ContainerIDs()
		slices.Sort(got)
		if n := s.exits.Load(); n != exits || !slices.Equal(got, ids) {
			t.Errorf("%s the shim has %v, and has ended %d times; want %v and %d", when, got, n, ids, exits)
		}
	}
	if err := os.Rename(gone, gone+".away"); err != nil {
		t.Fatal(err)
	}
	check("while the sandbox runs", 0, "c1", sandboxID)
	s.exit(t, sandboxID, "", 0)
	if _, err := s.Wait(t.Context(), &taskapi.WaitRequest{ID: sandboxID}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Delete(t.Context(), &taskapi.DeleteRequest{ID: sandboxID}); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(gone+".away", gone); err != nil {
		t.Fatal(err)
	}
	check("while the engine may delete the other container", 0, "c1")
	if err := os.RemoveAll(gone); err != nil {
		t.Fatal(err)
	}
	check("at the end", 1)
}
