package service

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/agent/api"
)

// add requests storages of the pod by the names of their targets.
func add(ctx context.Context, pod *Pod, names ...string) error {
	req := &api.AddStoragesRequest{}
	for _, name := range names {
		req.Storages = append(req.Storages, &api.Storage{Driver: "tmpfs", Target: pod.config.RunDir + "/" + name})
	}
	_, err := guestService{pod: pod}.AddStorages(ctx, req)
	return errgrpc.ToNative(err)
}

func TestAddStorages(t *testing.T) {
	pod, _, disks := diskPod(t)
	for _, names := range [][]string{{"s/1", "s/2"}, {"s/2", "s/3", "s/3"}, {}, {"s/1"}} {
		if err := add(t.Context(), pod, names...); err != nil {
			t.Fatal(err)
		}
	}
	disks.mount = errors.New("no disk")
	if err := add(t.Context(), pod, "s/1", "s/4"); err == nil || !strings.Contains(err.Error(), "no disk") {
		t.Error(err)
	}
	disks.mount = nil
	if err := add(t.Context(), pod, "s/4"); err != nil { // It may be tried again.
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"mount 1", "mount 2", "mount 3", "mount 4", "mount 4"}, disks.done); diff != "" {
		t.Error(diff)
	}
}

// Of many concurrent calls for the same storages one mounts each.
func TestAddStoragesAtOnce(t *testing.T) {
	pod, _, disks := diskPod(t)
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			if err := add(t.Context(), pod, "s/a", "s/b"); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if diff := cmp.Diff([]string{"mount a", "mount b"}, disks.done); diff != "" {
		t.Error(diff)
	}
}

func TestAddStoragesWaitsNoLongerThanItsCaller(t *testing.T) {
	pod, _, disks := diskPod(t)
	release, err := pod.holdMounts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := add(ctx, pod, "s/a"); !errdefs.IsCanceled(err) || len(disks.done) != 0 {
		t.Errorf("%v, done %q", err, disks.done)
	}
	release()
	if err := add(t.Context(), pod, "s/a"); err != nil {
		t.Error(err)
	}
}

func TestStoragesAmongFiles(t *testing.T) {
	pod, _, disks := diskPod(t)
	if err := add(t.Context(), pod, "s/a", "files/1"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"mount files", "mount a", "mount 1"}, disks.done); diff != "" {
		t.Error(diff)
	}
}

// A container's storage there does not hide copies, and they do not hide it.
func TestContainerStorageAmongFiles(t *testing.T) {
	pod, _, disks := diskPod(t)
	req := &taskapi.CreateTaskRequest{ID: "c", Options: packed(t, &api.ContainerConfig{
		Spec: []byte("{}"), Storages: []*api.Storage{{Driver: "scsi", Target: pod.config.RunDir + "/files/1"}},
	})}
	if _, err := pod.create(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"mount files", "mount 1"}, disks.done); diff != "" {
		t.Error(diff)
	}
}

func TestChangeFiles(t *testing.T) {
	pod, _, disks := diskPod(t)
	guest := api.NewGuestClient(dialPod(t, pod))
	dir := filesDir(pod.config)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	change := func(path, content string) error {
		_, err := guest.ChangeFiles(t.Context(), &api.ChangeFilesRequest{Changes: []*api.FileChange{{
			Path: path, Mode: 0o600, Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid()),
			Change: &api.FileChange_File{File: &api.FilePart{Content: []byte(content), Last: true}},
		}}})
		return errgrpc.ToNative(err)
	}
	for _, content := range []string{"a", "b"} {
		if err := change(dir+"/f", content); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(dir + "/f"); err != nil || string(got) != content {
			t.Errorf("%q, %v, want %q", got, err, content)
		}
	}
	if diff := cmp.Diff([]string{"mount files"}, disks.done); diff != "" {
		t.Error(diff)
	}
	if err := change("/etc/passwd", ""); !errdefs.IsInvalidArgument(err) {
		t.Error(err)
	}
	if err := change(dir+"/f", strings.Repeat("x", api.MaxChangeFiles)); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "want at most 2097152") {
		t.Error(err)
	}
	pod.stage = bare
	if err := change(dir+"/f", ""); !errdefs.IsFailedPrecondition(err) {
		t.Error(err)
	}
	if err := add(t.Context(), pod, "s/a"); !errdefs.IsFailedPrecondition(err) {
		t.Error(err)
	}
}
