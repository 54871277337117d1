package task_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/shim/shimtest/files"
	"github.com/katabox/katabox/shim/task"
	"github.com/katabox/katabox/virtcontainers/checkpoint"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// single returns a request to create a container with its own sandbox.
func (s *shim) single(t *testing.T) *taskapi.CreateTaskRequest {
	t.Helper()
	return &taskapi.CreateTaskRequest{ID: sandboxID, Bundle: s.bundle(t, sandboxID)}
}

// runSingle creates and starts a container.
func (s *shim) runSingle(t *testing.T, r *taskapi.CreateTaskRequest) {
	t.Helper()
	if _, err := s.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	s.wantStatus(t, "", tasktypes.Status_CREATED)
	if _, err := s.Start(t.Context(), &taskapi.StartRequest{ID: sandboxID}); err != nil {
		t.Fatal(err)
	}
	s.wantStatus(t, "", tasktypes.Status_RUNNING)
}

// saved makes a checkpoint and returns its directory. The container ends.
func (s *shim) saved(t *testing.T) string {
	t.Helper()
	s.runSingle(t, s.single(t))
	dir := filepath.Join(t.TempDir(), "made")
	r := &taskapi.CheckpointTaskRequest{ID: sandboxID, Path: dir, Options: packCheckpoint(t, &runcoptions.CheckpointOptions{Exit: true})}
	if _, err := s.Checkpoint(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	s.events.await(t, "exit pod=137")
	if _, err := s.Delete(t.Context(), &taskapi.DeleteRequest{ID: sandboxID}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func packCheckpoint(t *testing.T, options *runcoptions.CheckpointOptions) *anypb.Any {
	t.Helper()
	packed, err := anypb.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// A container that is saved runs on, unless the engine asks for its end. There is
// no event of it.
func TestCheckpoint(t *testing.T) {
	s := newShim(t, nil)
	s.runSingle(t, s.single(t))
	dir := t.TempDir()
	for name, options := range map[string]*anypb.Any{
		"none":      nil,
		"runc's":    packCheckpoint(t, &runcoptions.CheckpointOptions{OpenTcp: true}),
		"another's": {TypeUrl: "other", Value: []byte("\xff")},
	} {
		r := &taskapi.CheckpointTaskRequest{ID: sandboxID, Path: filepath.Join(dir, name), Options: options}
		if _, err := s.Checkpoint(t.Context(), r); err != nil {
			t.Errorf("with options %s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(r.Path, checkpoint.File)); err != nil {
			t.Errorf("with options %s: %v", name, err)
		}
	}
	s.wantStatus(t, "", tasktypes.Status_RUNNING)
	if diff := cmp.Diff([]string{"create pod", "start pod"}, s.events.list()); diff != "" {
		t.Errorf("events: %s", diff)
	}
}

// Options that cannot be decoded are refused.
func TestCheckpointOptions(t *testing.T) {
	s := newShim(t, nil)
	s.runSingle(t, s.single(t))
	options := packCheckpoint(t, &runcoptions.CheckpointOptions{})
	options.Value = []byte("\xff")
	_, err := s.Checkpoint(t.Context(), &taskapi.CheckpointTaskRequest{ID: sandboxID, Path: t.TempDir(), Options: options})
	wantError(t, "checkpoint", err, errdefs.IsInvalidArgument, "decode the checkpoint's options")
	s.wantStatus(t, "", tasktypes.Status_RUNNING)
}

// A container is restored by its creation.
func TestRestore(t *testing.T) {
	s := newShim(t, nil)
	dir := s.saved(t)
	next := restoringShim(t, s)
	r := next.single(t)
	r.Checkpoint = dir
	next.runSingle(t, r)
	calls := strings.Join(s.host.Agent.Calls(), ", ")
	if !strings.HasSuffix(calls, "Resume pod") || strings.Count(calls, "Start pod") != 1 {
		t.Errorf("the guest was asked for %s", calls)
	}
	next.exit(t, sandboxID, "", 3)
	next.events.await(t, "exit pod=3")
	if diff := cmp.Diff([]string{"create pod", "start pod", "exit pod=3"}, next.events.list()); diff != "" {
		t.Errorf("events: %s", diff)
	}
}

// restoringShim is another shim on the same host.
func restoringShim(t *testing.T, s *shim) *shim {
	t.Helper()
	next := newShim(t, func(o *task.Options) { o.Platform = s.host.Platform() })
	if err := next.host.Clear(); err != nil { // its own is not used
		t.Fatal(err)
	}
	next.host = s.host
	return next
}

// A restore that fails says why, and leaves nothing.
func TestRestoreFails(t *testing.T) {
	for name, tc := range map[string]struct {
		arrange func(t *testing.T, s *shim, r *taskapi.CreateTaskRequest)
		is      func(error) bool
		want    string
	}{
		"no checkpoint": {func(t *testing.T, _ *shim, r *taskapi.CreateTaskRequest) {
			t.Helper()
			r.Checkpoint = t.TempDir()
		}, errdefs.IsInvalidArgument, "not a checkpoint of this runtime"},
		"configuration": {func(t *testing.T, _ *shim, _ *taskapi.CreateTaskRequest) {
			t.Helper()
			files.Configure(t, "[hypervisor.qemu]\ndefault_memory = 300\n")
		}, errdefs.IsFailedPrecondition, "the configuration has changed?"},
		"terminal": {func(_ *testing.T, _ *shim, r *taskapi.CreateTaskRequest) { r.Terminal = true }, errdefs.IsFailedPrecondition, "terminal"},
		"guest": {func(_ *testing.T, s *shim, _ *taskapi.CreateTaskRequest) {
			s.host.Agent.Fail("Rejoin", errInjected)
		}, func(error) bool { return true }, "give the guest to another sandbox"},
		"stdio": {func(_ *testing.T, s *shim, r *taskapi.CreateTaskRequest) {
			r.Stdout = "file://" + filepath.Join(s.host.RunDir, "stdout")
			s.host.Agent.Fail(fakeguest.Stream, errInjected)
		}, func(error) bool { return true }, "streams: "},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShim(t, nil)
			r := s.single(t)
			r.Checkpoint = s.saved(t)
			next := restoringShim(t, s)
			tc.arrange(t, next, r)
			_, err := next.Create(t.Context(), r)
			wantError(t, "create", err, tc.is, tc.want)
			if left, err := s.host.Leftovers(); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
			if events := next.events.list(); len(events) > 0 {
				t.Errorf("events: %v", events)
			}
		})
	}
}
