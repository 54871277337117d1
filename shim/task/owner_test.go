package task_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/shim/engine"
	"github.com/katabox/katabox/shim/task"
)

// sentConn reports each write.
type sentConn struct {
	net.Conn
	bytes chan struct{}
}

func (c *sentConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.bytes <- struct{}{}
	return n, err
}

// waitElsewhere starts a Wait on a separate connection and returns a function
// that closes the connection.
func (s *shim) waitElsewhere(t *testing.T, execID string) (hangUp func()) {
	t.Helper()
	conn, err := net.Dial("unix", filepath.Join(s.host.RunDir, "shim.sock"))
	if err != nil {
		t.Fatal(err)
	}
	sent := &sentConn{Conn: conn, bytes: make(chan struct{}, 16)}
	client := ttrpc.NewClient(sent)
	service := taskapi.NewTTRPCTaskClient(client)
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_, _ = service.Wait(context.Background(), &taskapi.WaitRequest{ID: sandboxID, ExecID: execID})
	}()
	<-sent.bytes // the shim reads the request before the connection ends
	return func() {
		_ = client.Close()
		<-waited
	}
}

// To an engine that calls kata-runtime, the process that waits is the container's
// process: its death must end the container, and for an exec only the exec.
func TestOwnersDeathKills(t *testing.T) {
	s := newShim(t, func(o *task.Options) { o.Namespace = engine.CommandLine })
	ctx := t.Context()
	s.run(t, sandboxID)
	exec := &taskapi.ExecProcessRequest{ID: sandboxID, ExecID: "e1", Spec: &anypb.Any{Value: []byte("{}")}}
	if _, err := s.Exec(ctx, exec); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(ctx, &taskapi.StartRequest{ID: sandboxID, ExecID: "e1"}); err != nil {
		t.Fatal(err)
	}
	s.waitElsewhere(t, "e1")()
	s.events.await(t, "exit pod/e1=137")
	if resp, err := s.State(ctx, &taskapi.StateRequest{ID: sandboxID}); err != nil || resp.Status.String() != "RUNNING" {
		t.Errorf("the container is %v, %v", resp.GetStatus(), err)
	}
	s.waitElsewhere(t, "")()
	s.events.await(t, "exit pod=137")
}

// containerd restarts: its connections end, and its containers keep running.
func TestOthersMayHangUp(t *testing.T) {
	s := newShim(t, nil)
	s.run(t, sandboxID)
	s.waitElsewhere(t, "")()
	s.exit(t, sandboxID, "", 5)
	s.events.await(t, "exit pod=5")
}

// Only its owner would delete an exec: without one it is removed, also from the guest,
// and cannot be started any more.
func TestOwnersDeathRemovesAnExec(t *testing.T) {
	for _, started := range []bool{true, false} {
		s := newShim(t, func(o *task.Options) { o.Namespace = engine.CommandLine })
		ctx := t.Context()
		s.run(t, sandboxID)
		exec := &taskapi.ExecProcessRequest{ID: sandboxID, ExecID: "e1", Spec: &anypb.Any{Value: []byte("{}")}}
		if _, err := s.Exec(ctx, exec); err != nil {
			t.Fatal(err)
		}
		if started {
			if _, err := s.Start(ctx, &taskapi.StartRequest{ID: sandboxID, ExecID: "e1"}); err != nil {
				t.Fatal(err)
			}
		}
		s.waitElsewhere(t, "e1")()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			resp, err := s.State(ctx, &taskapi.StateRequest{ID: sandboxID, ExecID: "e1"})
			if errdefs.IsNotFound(errgrpc.ToNative(err)) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("started: %t: the exec is %v, %v", started, resp.GetStatus(), err)
			}
		}
	}
}
