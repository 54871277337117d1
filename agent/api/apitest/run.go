package apitest

import (
	"context"
	"testing"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/agent/api"
)

const (
	sigkill = 9
	killed  = 128 + sigkill
)

// Run tests a guest. newGuest makes one for each part.
func Run(t *testing.T, newGuest func(*testing.T) Guest) {
	t.Helper()
	for name, test := range map[string]func(*host){"stages": stages, "a setup that fails": setupFails} {
		t.Run(name, func(t *testing.T) { test(connect(t, newGuest(t))) })
	}
	for name, test := range map[string]func(*host){
		"hello": hello, "what is not there": notThere, "what no agent does": never, "life": life, "order": order,
		"streams": streams, "execs": execs, "a long start": longStart, "execs end with their init": execsEnd, "killed before its start": unstarted, "pause": pause,
		"iptables": iptables, "park": park, "park input": parkInput, "park fails": parkFails, "frames": frames,
		"rejoin": rejoin, "invalid": invalid,
		"deleted before its start": deleteCreated, "exec deleted before its start": deleteCreatedExec,
		"exec killed before its start": killCreatedExec, "probe": probe, "events twice": eventsTwice,
	} {
		t.Run(name, func(t *testing.T) {
			h := connect(t, newGuest(t))
			h.must("SetupSandbox", h.setUp())
			test(h)
		})
	}
}

func hello(h *host) {
	r, err := h.guest.Hello(h.Context(), &api.HelloRequest{ProtocolVersion: api.ProtocolVersion})
	h.must("Hello", err)
	if r.GetProtocolVersion() != api.ProtocolVersion || r.GetAgentVersion() == "" || r.GetKernelRelease() == "" {
		h.Errorf("Hello: %v", r)
	}
}

// notThere makes calls for a container and an exec that do not exist.
func notThere(h *host) {
	ctx := h.Context()
	h.running("c")
	for _, id := range []string{"x", "c"} {
		execID := ""
		if id == "c" {
			execID = "x"
		}
		_, wait := h.task.Wait(ctx, &task.WaitRequest{ID: id, ExecID: execID})
		_, state := h.task.State(ctx, &task.StateRequest{ID: id, ExecID: execID})
		_, resize := h.task.ResizePty(ctx, &task.ResizePtyRequest{ID: id, ExecID: execID})
		_, closeIO := h.task.CloseIO(ctx, &task.CloseIORequest{ID: id, ExecID: execID, Stdin: true})
		_, del := h.delete(id, execID)
		for what, err := range map[string]error{
			"Start": h.start(id, execID), "Kill": h.kill(id, execID, sigkill), "Wait": wait, "State": state,
			"ResizePty": resize, "CloseIO": closeIO, "Delete": del,
		} {
			h.want(what+" of "+id+"/"+execID, err, errdefs.IsNotFound)
		}
	}
	_, pids := h.task.Pids(ctx, &task.PidsRequest{ID: "x"})
	_, pause := h.task.Pause(ctx, &task.PauseRequest{ID: "x"})
	_, resume := h.task.Resume(ctx, &task.ResumeRequest{ID: "x"})
	_, stats := h.task.Stats(ctx, &task.StatsRequest{ID: "x"})
	_, update := h.task.Update(ctx, &task.UpdateTaskRequest{ID: "x", Resources: &anypb.Any{Value: []byte("{}")}})
	_, volume := h.guest.VolumeStats(ctx, &api.VolumeStatsRequest{Target: api.GuestFilesDir + "/x"})
	_, keep := h.guest.KeepMounts(ctx, &api.KeepMountsRequest{ContainerId: "x"})
	_, grow := h.guest.GrowVolume(ctx, &api.GrowVolumeRequest{Target: api.GuestFilesDir + "/x", DiskBytes: 1 << 20})
	for what, err := range map[string]error{
		"VolumeStats": volume, "GrowVolume": grow, "KeepMounts": keep,
		"Pids": pids, "Pause": pause, "Resume": resume, "Stats": stats, "Update": update, "Exec": h.exec("x", "e"),
	} {
		h.want(what, err, errdefs.IsNotFound)
	}
}

func never(h *host) {
	h.running("c")
	_, err := h.task.Checkpoint(h.Context(), &task.CheckpointTaskRequest{ID: "c"})
	h.want("Checkpoint", err, errdefs.IsNotImplemented)
	_, err = h.task.Connect(h.Context(), &task.ConnectRequest{ID: "c"})
	h.want("Connect", err, errdefs.IsNotImplemented)
	_, err = h.task.Shutdown(h.Context(), &task.ShutdownRequest{ID: "c"})
	h.want("Shutdown", err, errdefs.IsNotImplemented)
}

// life runs a container with output from create to delete.
func life(h *host) {
	h.must("create", h.create("c", "y"))
	h.want("a second of that id", h.create("c", ""), errdefs.IsAlreadyExists)
	out, refused := h.bind(&api.StreamOpen{ContainerId: "c", Stream: api.Stream_STREAM_STDOUT})
	if refused != "" {
		h.Fatal(refused)
	}
	h.must("start", h.start("c", ""))
	h.must("write", h.Write("c", "", "hello"))
	h.must("exit", h.Exit("c", "", 42))
	if exit := h.exits(&api.Exit{ContainerId: "c", Status: 42}); exit.GetStdoutBytes() != 5 || exit.GetExitedAt() == nil {
		h.Errorf("exit: %v", exit)
	}
	if text := h.read(out); text != "hello" {
		h.Errorf("output %q", text)
	}
	r, err := h.task.Wait(h.Context(), &task.WaitRequest{ID: "c"})
	if err != nil || r.GetExitStatus() != 42 {
		h.Errorf("Wait: %v, %v", r, err)
	}
	h.want("Kill of what has ended", h.kill("c", "", sigkill), errdefs.IsNotFound)
	h.want("exec in what has ended", h.exec("c", "e"), errdefs.IsFailedPrecondition)
	if status, err := h.delete("c", ""); err != nil || status != 42 {
		h.Errorf("Delete: %d, %v", status, err)
	}
	_, err = h.delete("c", "")
	h.want("a second Delete", err, errdefs.IsNotFound)
	h.must("the id again", h.create("c", ""))
}

// order checks that calls out of order are refused.
func order(h *host) {
	h.must("create", h.create("c", ""))
	h.must("start", h.start("c", ""))
	h.want("a second Start", h.start("c", ""), errdefs.IsFailedPrecondition)
	_, err := h.delete("c", "")
	h.want("Delete of what runs", err, errdefs.IsFailedPrecondition)
}

// streams must be bound before the start, each once.
func streams(h *host) {
	h.must("create", h.create("c", "y"))
	h.want("Start without its stream", h.start("c", ""), errdefs.IsFailedPrecondition)
	open := &api.StreamOpen{ContainerId: "c", Stream: api.Stream_STREAM_STDOUT}
	if _, refused := h.bind(open); refused != "" {
		h.Error(refused)
	}
	for what, open := range map[string]*api.StreamOpen{
		"bound": open, "no container": {ContainerId: "x", Stream: api.Stream_STREAM_STDOUT},
		"no exec": {ContainerId: "c", ExecId: "x", Stream: api.Stream_STREAM_STDOUT}, "not asked for": {ContainerId: "c", Stream: api.Stream_STREAM_STDIN},
	} {
		if _, refused := h.bind(open); refused == "" {
			h.Errorf("%s: the stream was bound", what)
		}
	}
	h.must("start", h.start("c", ""))
}

func execs(h *host) {
	h.running("c")
	h.must("exec", h.exec("c", "e"))
	h.want("a second of that id", h.exec("c", "e"), errdefs.IsAlreadyExists)
	h.must("start", h.start("c", "e"))
	h.want("a second Start", h.start("c", "e"), errdefs.IsFailedPrecondition)
	_, err := h.delete("c", "e")
	h.want("Delete of what runs", err, errdefs.IsFailedPrecondition)
	h.must("exit", h.Exit("c", "e", 3))
	h.exits(&api.Exit{ContainerId: "c", ExecId: "e", Status: 3})
	if status, err := h.delete("c", "e"); err != nil || status != 3 {
		h.Errorf("Delete: %d, %v", status, err)
	}
	h.must("the id again", h.exec("c", "e"))
}

// longStart ends an exec while it is being started, as a host does that has given up its
// start.
func longStart(h *host) {
	h.running("c")
	h.must("exec", h.exec("c", "e"))
	begun, release := h.HoldExec()
	started := make(chan error, 1)
	go func() { started <- h.start("c", "e") }()
	<-begun
	h.want("a signal", h.kill("c", "e", 15), errdefs.IsFailedPrecondition)
	h.must("SIGKILL", h.kill("c", "e", sigkill))
	ctx, cancel := context.WithTimeout(h.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := h.task.Delete(ctx, &task.DeleteRequest{ID: "c", ExecID: "e"})
	h.want("Delete of what is being started", err, func(err error) bool { return err != nil })
	time.Sleep(100 * time.Millisecond) // until the guest has noticed, too
	release()
	h.want("Start", <-started, errdefs.IsUnavailable)
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Millisecond) {
		if err = h.exec("c", "e"); !errdefs.IsAlreadyExists(errgrpc.ToNative(err)) {
			break
		}
	}
	h.must("the id again", err)
}

// execsEnd: their exits come before the init's.
func execsEnd(h *host) {
	h.running("c")
	h.must("exec", h.exec("c", "e"))
	h.must("start", h.start("c", "e"))
	h.must("exit", h.Exit("c", "", 0))
	h.exits(&api.Exit{ContainerId: "c", ExecId: "e", Status: killed, Signaled: true}, &api.Exit{ContainerId: "c"})
}

func unstarted(h *host) {
	h.must("create", h.create("c", ""))
	h.must("kill", h.kill("c", "", sigkill))
	h.exits(&api.Exit{ContainerId: "c", Status: killed, Signaled: true})
	if status, err := h.delete("c", ""); err != nil || status != killed {
		h.Errorf("Delete: %d, %v", status, err)
	}
}

func pause(h *host) {
	ctx := h.Context()
	h.must("create", h.create("c", ""))
	_, err := h.task.Pause(ctx, &task.PauseRequest{ID: "c"})
	h.want("Pause of what does not run", err, errdefs.IsFailedPrecondition)
	h.must("start", h.start("c", ""))
	_, err = h.task.Resume(ctx, &task.ResumeRequest{ID: "c"})
	h.want("Resume of what is not paused", err, errdefs.IsFailedPrecondition)
	_, err = h.task.Pause(ctx, &task.PauseRequest{ID: "c"})
	h.must("Pause", err)
	_, err = h.task.Resume(ctx, &task.ResumeRequest{ID: "c"})
	h.must("Resume", err)
}
