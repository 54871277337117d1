package apitest

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
)

// park ends a process's connections and binds them again: what was written
// meanwhile is sent then, also when the process has ended.
func park(h *host) {
	h.must("create", h.create("c", "y"))
	open := &api.StreamOpen{ContainerId: "c", Stream: api.Stream_STREAM_STDOUT}
	var sent uint64
	for i, text := range []string{"one ", "two ", "three"} {
		out, opened := h.open(open)
		if opened.GetError() != "" || opened.GetSent() != sent {
			h.Fatalf("bind %d: %v, want %d bytes sent", i, opened, sent)
		}
		if i == 0 {
			h.must("start", h.start("c", ""))
		}
		h.must("write", h.Write("c", "", text))
		h.readAs(out, text)
		sent += uint64(len(text))
		h.park()
		h.readAs(out, "")
	}
	h.must("write", h.Write("c", "", "last"))
	h.park()
	h.must("exit", h.Exit("c", "", 0))
	if exit := h.exits(&api.Exit{ContainerId: "c"}); exit.GetStdoutBytes() != sent+4 {
		h.Errorf("exit: %v, want %d bytes", exit, sent+4)
	}
	out, opened := h.open(open)
	if text := h.read(out); text != "last" || opened.GetSent() != sent {
		h.Errorf("%q after %d bytes, want %d", text, opened.GetSent(), sent)
	}
	_, err := h.delete("c", "")
	h.must("Delete", err)
}

// parkInput ends an input's connection and binds it again: the guest counts what it
// has received.
func parkInput(h *host) {
	h.must("create", h.createWith("c", "x", ""))
	open := &api.StreamOpen{ContainerId: "c", Stream: api.Stream_STREAM_STDIN}
	var sent uint64
	for i, text := range []string{"one ", "", "three"} {
		in, opened := h.open(open)
		if opened.GetError() != "" || opened.GetSent() != sent {
			h.Fatalf("bind %d: %v, want %d bytes received", i, opened, sent)
		}
		h.write(in, text)
		sent += uint64(len(text))
		h.park(&api.ParkedInput{ContainerId: "c", Bytes: sent})
		h.readAs(in, "")
	}
	h.end()
}

// end kills and deletes the container.
func (h *host) end() {
	h.Helper()
	h.must("kill", h.kill("c", "", sigkill))
	h.exits(&api.Exit{ContainerId: "c", Status: killed, Signaled: true})
	_, err := h.delete("c", "")
	h.must("Delete", err)
}

// parkFails has the guest wait for input that does not come: each stream can be
// bound again then, whether or not it was parked, but once.
func parkFails(h *host) {
	h.must("create", h.createWith("c", "x", "y"))
	streams := []*api.StreamOpen{
		{ContainerId: "c", Stream: api.Stream_STREAM_STDIN}, {ContainerId: "c", Stream: api.Stream_STREAM_STDOUT},
	}
	in, _ := h.open(streams[0])
	out, _ := h.open(streams[1])
	h.must("start", h.start("c", ""))
	h.must("write", h.Write("c", "", "hello"))
	h.readAs(out, "hello")
	h.write(in, "one")
	ctx, cancel := context.WithTimeout(h.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := h.guest.Park(ctx, &api.ParkRequest{Inputs: []*api.ParkedInput{{ContainerId: "c", Bytes: 4}}})
	h.want("Park without its input", err, func(err error) bool { return err != nil })
	h.write(in, "+")
	old, next := []net.Conn{in, out}, make([]net.Conn, 2)
	for i, want := range []uint64{4, 5} {
		conn, opened := h.open(streams[i])
		if opened.GetError() != "" || opened.GetSent() != want {
			h.Fatalf("bind again: %v, want %d bytes before", opened, want)
		}
		if _, refused := h.bind(streams[i]); refused == "" {
			h.Errorf("%v is bound twice", streams[i].GetStream())
		}
		h.readAs(old[i], "")
		next[i] = conn
	}
	h.must("write", h.Write("c", "", " again"))
	h.readAs(next[1], " again")
	h.write(next[0], "two")
	h.park(&api.ParkedInput{ContainerId: "c", Bytes: 7})
	h.end()
}

func (h *host) write(conn net.Conn, text string) {
	h.Helper()
	_, err := io.WriteString(conn, text)
	h.must("write input", err)
}

func (h *host) park(inputs ...*api.ParkedInput) {
	h.Helper()
	_, err := h.guest.Park(h.Context(), &api.ParkRequest{Inputs: inputs})
	h.must("Park", err)
}

// rejoin gives a container another id.
func rejoin(h *host) {
	h.running("c")
	h.running("other")
	h.must("exec", h.exec("other", "e"))
	rename := func(from, to string) error {
		_, err := h.guest.Rejoin(h.Context(), &api.RejoinRequest{Containers: []*api.RenamedContainer{{From: from, To: to}}})
		return err
	}
	h.want("a container that is not there", rename("x", "y"), errdefs.IsNotFound)
	h.want("an id that is taken", rename("other", "c"), errdefs.IsAlreadyExists)
	h.must("Rejoin", rename("other", "another"))
	h.want("Start by the id before", h.start("other", "e"), errdefs.IsNotFound)
	h.must("Start", h.start("another", "e"))
	h.must("exit", h.Exit("another", "e", 3))
	h.exits(&api.Exit{ContainerId: "another", ExecId: "e", Status: 3})
	_, err := h.task.State(h.Context(), &task.StateRequest{ID: "another"})
	h.must("State", err)
	h.must("the id again", h.create("other", ""))
}
