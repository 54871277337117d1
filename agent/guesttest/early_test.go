package guesttest

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/agent/api"
)

// earlyID is the container that runs, twice, before this guest has a pod.
const earlyID = "before-pod"

// early is what became of these runs, and what there was after each.
var early struct {
	prepared error
	errs     [2]error
	left     [2][]string
}

// runEarly prepares the guest and runs the container, and prints how long that
// takes.
func (m *machine) runEarly(ctx context.Context) {
	_, early.prepared = m.guest.Prepare(ctx, &api.PrepareRequest{
		Storages: []*api.Storage{{Driver: "tmpfs", Target: api.GuestRunDir + "/" + earlyID, Options: []string{"size=1m"}}},
	})
	for i := range early.errs {
		began := time.Now()
		early.errs[i] = m.runOne(ctx)
		fmt.Println("an early container took", time.Since(began))
		early.left[i] = traces()
	}
}

// runOne runs and removes the container.
func (m *machine) runOne(ctx context.Context) error {
	spec := shell("exit 3")
	spec.Hostname = earlyID
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	config, err := proto.Marshal(&api.ContainerConfig{Spec: text})
	if err != nil {
		return err
	}
	req := &taskapi.CreateTaskRequest{ID: earlyID, Options: &anypb.Any{TypeUrl: api.ContainerConfigTypeURL, Value: config}}
	if _, err := m.task.Create(ctx, req); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if _, err := m.task.Start(ctx, &taskapi.StartRequest{ID: earlyID}); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	exit, err := m.task.Wait(ctx, &taskapi.WaitRequest{ID: earlyID})
	if err != nil || exit.GetExitStatus() != 3 {
		return fmt.Errorf("exit status %d, %w", exit.GetExitStatus(), err)
	}
	if _, err := m.task.Delete(ctx, &taskapi.DeleteRequest{ID: earlyID}); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// traces lists the mounts, cgroups, files of /run and processes with a program.
func traces() (list []string) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return []string{err.Error()}
	}
	list = strings.Split(string(mounts), "\n")
	for _, dir := range []string{"/run", "/sys/fs/cgroup"} {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && (dir == "/run" || e.IsDir()) {
				list = append(list, path)
			}
			return nil
		})
	}
	programs, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range programs {
		if program, err := os.Readlink(link); err == nil { // else a thread of the kernel
			list = append(list, filepath.Dir(link)+" "+program)
		}
	}
	return list
}

// Containers run before the guest has a pod, and nothing of them is left in it.
func TestGuestPrepare(t *testing.T) {
	m := guestOnly(t)
	if early.prepared != nil {
		t.Errorf("prepare: %v", errgrpc.ToNative(early.prepared))
	}
	for i, err := range early.errs {
		if err != nil {
			t.Errorf("container %d: %v", i+1, errgrpc.ToNative(err))
		}
	}
	// What all containers share stays after the first.
	if diff := cmp.Diff(early.left[0], early.left[1]); diff != "" {
		t.Errorf("what the second leaves (-before +after):\n%s", diff)
	}
	for _, line := range early.left[0] {
		if strings.Contains(line, earlyID) && !strings.Contains(line, api.GuestRunDir+"/"+earlyID) {
			t.Errorf("left behind: %s", line)
		}
	}
	if words := m.told(earlyID); len(words) != 0 {
		t.Errorf("the pod was told %q", words)
	}
	if !strings.Contains(fileIn(t, "/proc/mounts"), api.GuestRunDir+"/"+earlyID+" tmpfs") {
		t.Error("what was mounted early is gone")
	}
	if _, err := m.guest.Prepare(t.Context(), &api.PrepareRequest{}); !errdefs.IsFailedPrecondition(errgrpc.ToNative(err)) {
		t.Errorf("with a pod: %v", err)
	}
}
