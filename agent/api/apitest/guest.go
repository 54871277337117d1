package apitest

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"testing"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/agent/api"
)

// Guest is an agent whose processes the test controls. It is new: it has no pod yet.
type Guest struct {
	// Dial connects to one of the agent's ports.
	Dial func(ctx context.Context, port uint32) (net.Conn, error)
	// Write has a process write to its stdout, and Exit end with that status. An
	// empty execID is a container's init. An exec's first argument is its id.
	Write func(id, execID, text string) error
	Exit  func(id, execID string, status uint32) error
	// HoldExec has the start of the next exec last until release is called; begun is
	// closed when it is being started.
	HoldExec func() (begun <-chan struct{}, release func())
}

// patience bounds a test's wait for an event.
const patience = time.Minute

// host is the host's side of one guest.
type host struct {
	*testing.T
	Guest
	task   task.TTRPCTaskService
	guest  api.GuestClient
	events api.Guest_EventsClient
}

// connect opens a host's initial connections.
func connect(t *testing.T, g Guest) *host {
	t.Helper()
	conn, err := g.Dial(t.Context(), api.PortRPC)
	if err != nil {
		t.Fatal(err)
	}
	client := ttrpc.NewClient(conn)
	t.Cleanup(func() { _ = client.Close() })
	h := &host{T: t, Guest: g, task: task.NewTTRPCTaskClient(client), guest: api.NewGuestClient(client)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	if h.events, err = h.guest.Events(ctx, &api.EventsRequest{}); err != nil {
		t.Fatal(err)
	}
	return h
}

// want checks the kind of an error, or with a nil kind that there is none.
func (h *host) want(what string, err error, kind func(error) bool) {
	h.Helper()
	err = errgrpc.ToNative(err)
	if kind == nil && err != nil || kind != nil && !kind(err) {
		h.Errorf("%s: %v", what, err)
	}
}

// must ends the test on an error.
func (h *host) must(what string, err error) {
	h.Helper()
	if err != nil {
		h.Fatalf("%s: %v", what, errgrpc.ToNative(err))
	}
}

// create makes a container, with the given stdout ("" is none).
func (h *host) create(id, stdout string) error {
	h.Helper()
	return h.createWith(id, "", stdout)
}

// createWith is create with an input, too.
func (h *host) createWith(id, stdin, stdout string) error {
	h.Helper()
	config, err := proto.Marshal(&api.ContainerConfig{Spec: []byte("{}")})
	h.must("encode", err)
	_, err = h.task.Create(h.Context(), &task.CreateTaskRequest{
		ID: id, Stdin: stdin, Stdout: stdout, Options: &anypb.Any{TypeUrl: api.ContainerConfigTypeURL, Value: config},
	})
	return err
}

func (h *host) exec(id, execID string) error {
	h.Helper()
	spec, err := json.Marshal(&specs.Process{Args: []string{execID}, Cwd: "/"})
	h.must("encode", err)
	_, err = h.task.Exec(h.Context(), &task.ExecProcessRequest{ID: id, ExecID: execID, Spec: &anypb.Any{Value: spec}})
	return err
}

func (h *host) start(id, execID string) error {
	_, err := h.task.Start(h.Context(), &task.StartRequest{ID: id, ExecID: execID})
	return err
}

func (h *host) kill(id, execID string, signal uint32) error {
	_, err := h.task.Kill(h.Context(), &task.KillRequest{ID: id, ExecID: execID, Signal: signal})
	return err
}

// delete returns the status that the process ended with.
func (h *host) delete(id, execID string) (uint32, error) {
	r, err := h.task.Delete(h.Context(), &task.DeleteRequest{ID: id, ExecID: execID})
	return r.GetExitStatus(), err
}

// running makes a container that runs.
func (h *host) running(id string) {
	h.Helper()
	h.must("create", h.create(id, ""))
	h.must("start", h.start(id, ""))
}

// exits expects these exits, in order, and returns the last.
func (h *host) exits(want ...*api.Exit) (last *api.Exit) {
	h.Helper()
	for _, w := range want {
		e, err := h.events.Recv()
		h.must("event", err)
		last = e.GetExit()
		if last.GetContainerId() != w.GetContainerId() || last.GetExecId() != w.GetExecId() || last.GetStatus() != w.GetStatus() ||
			last.GetSignaled() != w.GetSignaled() {
			h.Errorf("event %v, want the exit %v", e, w)
		}
	}
	return last
}

// bind connects to a stream, and returns the agent's refusal.
func (h *host) bind(open *api.StreamOpen) (net.Conn, string) {
	h.Helper()
	conn, opened := h.open(open)
	return conn, opened.GetError()
}

// open connects to a stream, and returns the agent's answer.
func (h *host) open(open *api.StreamOpen) (net.Conn, *api.StreamOpened) {
	h.Helper()
	conn, err := h.Dial(h.Context(), api.PortStream)
	h.must("dial", err)
	h.Cleanup(func() { _ = conn.Close() })
	h.must("deadline", conn.SetDeadline(time.Now().Add(patience)))
	h.must("ask for the stream", api.WriteFrame(conn, open))
	var opened api.StreamOpened
	h.must("answer", api.ReadFrame(conn, &opened))
	return conn, &opened
}

// readAs expects that text, or if it is empty the end.
func (h *host) readAs(conn net.Conn, text string) {
	h.Helper()
	got := make([]byte, len(text))
	if text == "" {
		if rest := h.read(conn); rest != "" {
			h.Errorf("%q, want the end", rest)
		}
		return
	}
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
		h.Errorf("%q, %v, want %q", got, err, text)
	}
}

// read returns all that comes until the stream ends.
func (h *host) read(conn net.Conn) string {
	h.Helper()
	data, err := io.ReadAll(conn)
	h.must("read stream", err)
	return string(data)
}
