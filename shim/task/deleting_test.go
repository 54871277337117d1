package task_test

import (
	"context"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"google.golang.org/protobuf/proto"
)

// A deletion may take seconds. A container that is being deleted still has its exit:
// an engine that is restarted meanwhile asks for the state of each container that it
// finds, and takes the exit from there.
func TestStateDuringDeletion(t *testing.T) {
	s := newShim(t, nil)
	ctx := t.Context()
	s.run(t, sandboxID)
	s.run(t, "c1")
	s.exit(t, "c1", "", 7)
	exit, err := s.Wait(ctx, &taskapi.WaitRequest{ID: "c1"})
	if err != nil {
		t.Fatal(err)
	}
	asked, goOn := make(chan struct{}), make(chan struct{})
	s.host.Agent.Hook("Delete", func(context.Context, proto.Message) error {
		close(asked)
		<-goOn
		return nil
	})
	deleted := make(chan error, 1)
	go func() {
		_, err := s.Delete(ctx, &taskapi.DeleteRequest{ID: "c1"})
		deleted <- err
	}()
	<-asked
	state, err := s.State(ctx, &taskapi.StateRequest{ID: "c1"})
	close(goOn)
	if err != nil || state.Status != tasktypes.Status_STOPPED || state.ExitStatus != 7 || !proto.Equal(state.ExitedAt, exit.ExitedAt) {
		t.Errorf("state %v, error %v; want it stopped, with the exit %v", state, err, exit)
	}
	if err := <-deleted; err != nil {
		t.Error(err)
	}
}
