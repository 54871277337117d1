package fakeguest_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// bindInput binds a container's stdin.
func bindInput(t *testing.T, agent *fakeguest.Agent, id string) guest.Conn {
	t.Helper()
	conn, err := agent.Dial(t.Context(), api.PortStream)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := api.WriteFrame(conn, &api.StreamOpen{ContainerId: id, Stream: api.Stream_STREAM_STDIN}); err != nil {
		t.Fatal(err)
	}
	var opened api.StreamOpened
	if err := api.ReadFrame(conn, &opened); err != nil || opened.GetError() != "" {
		t.Fatal(opened.GetError(), err)
	}
	return conn
}

// What the host has sent before Park is a part of the input, and a Park for which
// something is missing fails.
func TestParkKeepsInput(t *testing.T) {
	agent := fakeguest.NewAgent()
	t.Cleanup(agent.Die)
	conn, err := agent.Dial(t.Context(), api.PortRPC)
	if err != nil {
		t.Fatal(err)
	}
	client := ttrpc.NewClient(conn)
	t.Cleanup(func() { _ = client.Close() })
	if _, err := task.NewTTRPCTaskClient(client).Create(t.Context(), &task.CreateTaskRequest{ID: "c", Stdin: "x"}); err != nil {
		t.Fatal(err)
	}
	park := func(bytes uint64) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req := &api.ParkRequest{Inputs: []*api.ParkedInput{{ContainerId: "c", Bytes: bytes}}}
		_, err := api.NewGuestClient(client).Park(ctx, req)
		return err
	}
	in := bindInput(t, agent, "c")
	_, _ = io.WriteString(in, "one ")
	if err := park(5); err == nil {
		t.Error("parked without a byte that was announced")
	}
	if err := park(4); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection lives: %v", err)
	}
	in = bindInput(t, agent, "c")
	_, _ = io.WriteString(in, "two")
	_ = in.CloseWrite()
	if got, err := agent.ReadInput("c", ""); err != nil || got != "one two" {
		t.Errorf("%q, %v", got, err)
	}
}
