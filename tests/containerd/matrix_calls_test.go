package containerd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/services/tasks/v1"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// target is the process that a call is about: exec is empty for an init.
type target struct{ id, exec string }

// verb is one method, called on the shim and on containerd. A nil function
// means that this side lacks the method. The text is the comparable part of the
// answer.
type verb struct {
	name   string
	shim   func(context.Context, *stage, target) (string, error)
	engine func(context.Context, *stage, target) (string, error)
}

// kinds are errdefs' classes by the names of their gRPC codes; each class has
// one code and each code one class.
var kinds = []struct {
	name string
	is   func(error) bool
}{
	{"NotFound", errdefs.IsNotFound},
	{"AlreadyExists", errdefs.IsAlreadyExists},
	{"InvalidArgument", errdefs.IsInvalidArgument},
	{"FailedPrecondition", errdefs.IsFailedPrecondition},
	{"Unimplemented", errdefs.IsNotImplemented},
	{"Unavailable", errdefs.IsUnavailable},
	{"OutOfRange", errdefs.IsOutOfRange},
	{"PermissionDenied", errdefs.IsPermissionDenied},
	{"Aborted", errdefs.IsAborted},
	{"Internal", errdefs.IsInternal},
	{"DeadlineExceeded", errdefs.IsDeadlineExceeded},
	{"Canceled", errdefs.IsCanceled},
}

// kind is the kind of an error; "ok" for none. Errors from the shim carry a
// gRPC status, those of containerd's client are already errdefs'.
func kind(err error) string {
	if err == nil {
		return "ok"
	}
	native := errgrpc.ToNative(err)
	for _, k := range kinds {
		if k.is(err) || k.is(native) {
			return k.name
		}
	}
	return "Unknown"
}

// outcome returns a row's text for an answer.
func outcome(detail string, err error) string {
	if err != nil || detail == "" {
		return kind(err)
	}
	return detail
}

// call calls the shim directly.
func (s *stage) call(ctx context.Context, method string, req, resp any) error {
	return s.shim.Call(s.d.Context(ctx), s.service, method, req, resp)
}

// order is like call, for methods with an empty answer.
func (s *stage) order(ctx context.Context, method string, req any) (string, error) {
	return "", s.call(ctx, method, req, &emptypb.Empty{})
}

// noText is for answers without content.
func noText[T any](_ T, err error) (string, error) { return "", err }

// briefly bounds a Wait: only if it is expected to block is the time short, so
// that a late answer on a slow machine is not missed.
func (s *stage) briefly(ctx context.Context, wait func(context.Context) (uint32, error)) (string, error) {
	patience := 30 * time.Second
	if s.alive {
		patience = 500 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	code, err := wait(ctx)
	if kind(err) == "DeadlineExceeded" || err != nil && strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
		return "blocks", nil // depends on which goroutine noticed first, and its kind of error
	}
	return fmt.Sprintf("exit %d", code), err
}

// processes describes an answer to Pids.
func processes(list []*tasktypes.ProcessInfo) string {
	var execs []string
	for _, p := range list {
		details := &runcoptions.ProcessDetails{}
		if p.Info != nil && p.Info.UnmarshalTo(details) == nil {
			execs = append(execs, details.ExecID)
		}
	}
	return fmt.Sprintf("%d processes, execs [%s]", len(list), strings.Join(execs, " "))
}

// pidsLimit returns a change of limits that is valid for any container.
func pidsLimit(limit int64) *anypb.Any {
	return resources(&specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &limit}})
}

func resources(r *specs.LinuxResources) *anypb.Any {
	packed, err := typeurl.MarshalAnyToProto(r)
	if err != nil {
		panic(err) // the type is registered by containerd's client
	}
	return packed
}

// command is an exec's process as containerd sends it.
func command(args ...string) *anypb.Any {
	packed, err := typeurl.MarshalAnyToProto(&specs.Process{
		Args: args, Cwd: "/", Env: []string{"PATH=/usr/bin:/bin"},
	})
	if err != nil {
		panic(err) // as above
	}
	return packed
}

func verbState(ctx context.Context, s *stage, at target) (string, error) {
	var r task.StateResponse
	err := s.call(ctx, "State", &task.StateRequest{ID: at.id, ExecID: at.exec}, &r)
	return stateText(r.Status, r.Pid, r.ExitStatus, r.ExitedAt.IsValid() && r.ExitedAt.Seconds > 0), err
}

func verbGet(ctx context.Context, s *stage, at target) (string, error) {
	r, err := s.engine.Get(s.d.Context(ctx), &tasks.GetRequest{ContainerID: at.id, ExecID: at.exec})
	p := r.GetProcess()
	return stateText(p.GetStatus(), p.GetPid(), p.GetExitStatus(), p.GetExitedAt().IsValid() && p.GetExitedAt().Seconds > 0), err
}

func stateText(status tasktypes.Status, pid, exit uint32, at bool) string {
	text := fmt.Sprintf("%v, pid %t", status, pid > 0)
	if status == tasktypes.Status_STOPPED {
		text += fmt.Sprintf(", exit %d, time %t", exit, at)
	}
	return text
}

func verbConnect(ctx context.Context, s *stage, at target) (string, error) {
	var r task.ConnectResponse
	err := s.call(ctx, "Connect", &task.ConnectRequest{ID: at.id}, &r)
	return fmt.Sprintf("shim %t, task %t", r.ShimPid > 0, r.TaskPid > 0), err
}

func verbPids(ctx context.Context, s *stage, at target) (string, error) {
	var r task.PidsResponse
	err := s.call(ctx, "Pids", &task.PidsRequest{ID: at.id}, &r)
	return processes(r.Processes), err
}

func verbStats(ctx context.Context, s *stage, at target) (string, error) {
	var r task.StatsResponse
	err := s.call(ctx, "Stats", &task.StatsRequest{ID: at.id}, &r)
	return r.Stats.GetTypeUrl(), err
}
