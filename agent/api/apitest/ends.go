package apitest

import (
	"context"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/katabox/katabox/agent/api"
)

// neverStarted is the status of an exec that was deleted before its start.
const neverStarted = 255

// deleteCreated deletes a container that was never started: its init is killed, and its
// exit reported.
func deleteCreated(h *host) {
	h.must("create", h.create("c", ""))
	if status, err := h.delete("c", ""); err != nil || status != killed {
		h.Errorf("Delete: %d, %v", status, err)
	}
	h.exits(&api.Exit{ContainerId: "c", Status: killed, Signaled: true})
	h.must("the id again", h.create("c", ""))
}

// deleteCreatedExec deletes an exec that was never started, which wakes those that wait
// for its end. No exit is reported.
func deleteCreatedExec(h *host) {
	h.running("c")
	began, err := time.Now(), deleteAwaited(h)
	for errdefs.IsNotFound(errgrpc.ToNative(err)) && time.Since(began) < patience {
		err = deleteAwaited(h) // the call of Wait came after that of Delete
	}
	h.want("Wait", err, nil)
	h.must("exit", h.Exit("c", "", 0))
	h.exits(&api.Exit{ContainerId: "c"})
}

// deleteAwaited makes an exec, deletes it while, most of the time, a call of Wait waits for
// its end, and returns the error of that call.
func deleteAwaited(h *host) error {
	h.must("exec", h.exec("c", "e"))
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	waited := make(chan error, 1)
	go func() {
		r, err := h.task.Wait(ctx, &task.WaitRequest{ID: "c", ExecID: "e"})
		if err == nil && r.GetExitStatus() != neverStarted {
			h.Errorf("Wait: %d", r.GetExitStatus())
		}
		waited <- err
	}()
	time.Sleep(100 * time.Millisecond)
	if status, err := h.delete("c", "e"); err != nil || status != neverStarted {
		h.Errorf("Delete: %d, %v", status, err)
	}
	return <-waited
}

// killCreatedExec sends signals to an exec that was never started: nothing gets them.
func killCreatedExec(h *host) {
	h.running("c")
	h.must("exec", h.exec("c", "e"))
	for _, signal := range []uint32{0, 15, sigkill} {
		h.want("a signal for what is not started", h.kill("c", "e", signal), errdefs.IsFailedPrecondition)
	}
	h.must("start", h.start("c", "e"))
	h.must("exit", h.Exit("c", "e", 3))
	h.exits(&api.Exit{ContainerId: "c", ExecId: "e", Status: 3})
}

// probe sends signal 0, which ends nothing.
func probe(h *host) {
	h.running("c")
	h.must("exec", h.exec("c", "e"))
	h.must("start", h.start("c", "e"))
	for _, execID := range []string{"", "e", "", "e"} {
		h.must("signal 0", h.kill("c", execID, 0))
	}
	h.must("exit", h.Exit("c", "e", 3))
	h.exits(&api.Exit{ContainerId: "c", ExecId: "e", Status: 3})
}

// eventsTwice opens a second stream of events, which takes the place of the first.
func eventsTwice(h *host) {
	h.running("c")
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	first := h.events
	var err error
	h.events, err = h.guest.Events(ctx, &api.EventsRequest{})
	h.must("Events", err)
	if e, err := first.Recv(); err == nil {
		h.Errorf("the first stream has %v", e)
	}
	h.must("exit", h.Exit("c", "", 7))
	h.exits(&api.Exit{ContainerId: "c", Status: 7})
}
