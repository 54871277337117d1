package containerd

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/services/tasks/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"
)

// probes are the methods that are called in every state, in this order: those
// that change nothing first.
var probes = []verb{
	{"State", verbState, verbGet},
	{"Connect", verbConnect, nil},
	{"Pids", verbPids, func(ctx context.Context, s *stage, at target) (string, error) {
		r, err := s.engine.ListPids(ctx, &tasks.ListPidsRequest{ContainerID: at.id})
		return fmt.Sprintf("%d processes", len(r.GetProcesses())), err
	}},
	{"Stats", verbStats, func(ctx context.Context, s *stage, at target) (string, error) {
		r, err := s.engine.Metrics(ctx, &tasks.MetricsRequest{Filters: []string{"id==" + at.id}})
		return fmt.Sprintf("%d metrics", len(r.GetMetrics())), err
	}},
	{"Wait", func(ctx context.Context, s *stage, at target) (string, error) {
		return s.briefly(ctx, func(ctx context.Context) (uint32, error) {
			var r task.WaitResponse
			err := s.call(ctx, "Wait", &task.WaitRequest{ID: at.id, ExecID: at.exec}, &r)
			return r.ExitStatus, err
		})
	}, func(ctx context.Context, s *stage, at target) (string, error) {
		return s.briefly(ctx, func(ctx context.Context) (uint32, error) {
			r, err := s.engine.Wait(ctx, &tasks.WaitRequest{ContainerID: at.id, ExecID: at.exec})
			return r.GetExitStatus(), err
		})
	}},
	{"ResizePty", func(ctx context.Context, s *stage, at target) (string, error) {
		return s.order(ctx, "ResizePty", &task.ResizePtyRequest{ID: at.id, ExecID: at.exec, Width: 80, Height: 25})
	}, func(ctx context.Context, s *stage, at target) (string, error) {
		return noText(s.engine.ResizePty(ctx, &tasks.ResizePtyRequest{ContainerID: at.id, ExecID: at.exec, Width: 80, Height: 25}))
	}},
	{"CloseIO", func(ctx context.Context, s *stage, at target) (string, error) {
		return s.order(ctx, "CloseIO", &task.CloseIORequest{ID: at.id, ExecID: at.exec, Stdin: true})
	}, func(ctx context.Context, s *stage, at target) (string, error) {
		return noText(s.engine.CloseIO(ctx, &tasks.CloseIORequest{ContainerID: at.id, ExecID: at.exec, Stdin: true}))
	}},
	killVerb("Kill 0", 0, false),
	killVerb("Kill SIGWINCH", uint32(unix.SIGWINCH), false),
	killVerb("Kill 0 all", 0, true),
	killVerb("Kill 999", 999, false),
	{"Update", func(ctx context.Context, s *stage, at target) (string, error) {
		return s.order(ctx, "Update", &task.UpdateTaskRequest{ID: at.id, Resources: pidsLimit(100)})
	}, func(ctx context.Context, s *stage, at target) (string, error) {
		return noText(s.engine.Update(ctx, &tasks.UpdateTaskRequest{ContainerID: at.id, Resources: pidsLimit(100)}))
	}},
	// Whether the rest works depends on CRIU and on QEMU's version (checkpoint_test.go).
	{"Checkpoint with bad options", func(ctx context.Context, s *stage, at target) (string, error) {
		options := &anypb.Any{TypeUrl: "containerd.runc.v1.CheckpointOptions", Value: []byte{0xff}}
		return s.order(ctx, "Checkpoint", &task.CheckpointTaskRequest{ID: at.id, Path: s.t.TempDir(), Options: options})
	}, nil},
	{"Shutdown", func(ctx context.Context, s *stage, at target) (string, error) {
		return s.order(ctx, "Shutdown", &task.ShutdownRequest{ID: at.id})
	}, nil},
	{"Exec", func(ctx context.Context, s *stage, at target) (string, error) {
		s.execs++
		id := fmt.Sprintf("x%d", s.execs)
		return s.order(ctx, "Exec", &task.ExecProcessRequest{ID: at.id, ExecID: id, Spec: command("true")})
	}, nil},
	{"Resume", func(ctx context.Context, s *stage, at target) (string, error) {
		return s.order(ctx, "Resume", &task.ResumeRequest{ID: at.id})
	}, func(ctx context.Context, s *stage, at target) (string, error) {
		return noText(s.engine.Resume(ctx, &tasks.ResumeTaskRequest{ContainerID: at.id}))
	}},
	{"Pause", func(ctx context.Context, s *stage, at target) (string, error) {
		return s.order(ctx, "Pause", &task.PauseRequest{ID: at.id})
	}, func(ctx context.Context, s *stage, at target) (string, error) {
		return noText(s.engine.Pause(ctx, &tasks.PauseTaskRequest{ContainerID: at.id}))
	}},
	{"Start", func(ctx context.Context, s *stage, at target) (string, error) {
		return "", s.call(ctx, "Start", &task.StartRequest{ID: at.id, ExecID: at.exec}, &task.StartResponse{})
	}, func(ctx context.Context, s *stage, at target) (string, error) {
		return noText(s.engine.Start(ctx, &tasks.StartRequest{ContainerID: at.id, ExecID: at.exec}))
	}},
	{"Delete", func(ctx context.Context, s *stage, at target) (string, error) {
		var r task.DeleteResponse
		err := s.call(ctx, "Delete", &task.DeleteRequest{ID: at.id, ExecID: at.exec}, &r)
		return fmt.Sprintf("exit %d, time %t", r.ExitStatus, r.ExitedAt.IsValid() && r.ExitedAt.Seconds > 0), err
	}, engineDelete},
}

func engineDelete(ctx context.Context, s *stage, at target) (string, error) {
	if at.exec != "" {
		r, err := s.engine.DeleteProcess(ctx, &tasks.DeleteProcessRequest{ContainerID: at.id, ExecID: at.exec})
		return fmt.Sprintf("exit %d, time %t", r.GetExitStatus(), r.GetExitedAt().GetSeconds() > 0), err
	}
	r, err := s.engine.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: at.id})
	return fmt.Sprintf("exit %d, time %t", r.GetExitStatus(), r.GetExitedAt().GetSeconds() > 0), err
}

func killVerb(name string, signal uint32, all bool) verb {
	return verb{name, func(ctx context.Context, s *stage, at target) (string, error) {
		return s.order(ctx, "Kill", &task.KillRequest{ID: at.id, ExecID: at.exec, Signal: signal, All: all})
	}, func(ctx context.Context, s *stage, at target) (string, error) {
		return noText(s.engine.Kill(ctx, &tasks.KillRequest{ContainerID: at.id, ExecID: at.exec, Signal: signal, All: all}))
	}}
}

// ofProcess are the methods that accept an exec.
var ofProcess = []string{"State", "Wait", "ResizePty", "CloseIO", "Kill 0", "Kill SIGWINCH", "Kill 0 all", "Kill 999", "Start", "Delete"}

// probe calls every method on a process, first on the shim, then on containerd,
// and records the answers. Methods that would succeed and change its state must
// be named in but.
func (s *stage) probe(ctx context.Context, state string, at target, but ...string) {
	s.t.Helper()
	ctx = s.d.Context(ctx)
	s.alive = slices.Contains([]string{"created", "running", "paused", "added"}, state)
	defer func() { s.alive = false }()
	for _, v := range probes {
		if slices.Contains(but, v.name) || at.exec != "" && !slices.Contains(ofProcess, v.name) {
			continue
		}
		s.note(state+" "+v.name, "%s", outcome(v.shim(ctx, s, at)))
	}
	for _, v := range probes {
		if v.engine == nil || slices.Contains(but, v.name) || at.exec != "" && !slices.Contains(ofProcess, v.name) {
			continue
		}
		s.note(state+" "+v.name+" by containerd", "%s", outcome(v.engine(ctx, s, at)))
	}
}

// do calls one method of the shim.
func (s *stage) do(ctx context.Context, method string, at target) string {
	s.t.Helper()
	for _, v := range probes {
		if v.name == method {
			return outcome(v.shim(ctx, s, at))
		}
	}
	s.t.Fatalf("no method %q", method)
	return ""
}
