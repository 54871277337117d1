package service

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// A container that is made when the host does not wait for it any more is removed, and
// a call that waits for it ends.
func TestCreateForNoHost(t *testing.T) {
	pod, runtime := testPod(t)
	ctx, giveUp := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	runtime.onCreate = func() {
		_, init, err := pod.process("c", "")
		if err != nil {
			t.Error(err)
			return
		}
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := init.wait(ctx)
			waited <- err
		}()
		giveUp()
	}
	if _, err := pod.create(ctx, createRequest(t, "c")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, _, err := pod.process("c", ""); !errdefs.IsNotFound(err) {
		t.Errorf("it is there: %v", err)
	}
	if runtime.last.destroyed != 1 {
		t.Errorf("destroyed %d times", runtime.last.destroyed)
	}
	if err := <-waited; err != nil {
		t.Errorf("wait: %v", err)
	}
}

// An exec that is started when the host does not wait for it any more is ended.
func TestExecForNoHost(t *testing.T) {
	pod, runtime := testPod(t)
	startContainer(t, pod, "c")
	addExec(t, pod)
	ctx, giveUp := context.WithCancel(t.Context())
	runtime.last.onExec = giveUp
	if _, err := pod.start(ctx, "c", "e"); !errors.Is(err, context.Canceled) {
		t.Errorf("start: %v", err)
	}
	checkDoomed(t, pod, runtime.last)
	if resp, err := pod.delete(t.Context(), "c", "e"); err != nil || resp.GetExitStatus() != failedStatus {
		t.Errorf("delete: %v, %v", resp, err)
	}
}

// An update learns that the host does not wait for it any more.
func TestUpdateForNoHost(t *testing.T) {
	pod, _ := testPod(t)
	startContainer(t, pod, "c")
	ctx, giveUp := context.WithCancel(t.Context())
	update := func() error {
		_, err := taskService{pod}.Update(ctx, &taskapi.UpdateTaskRequest{ID: "c", Resources: &anypb.Any{Value: []byte("{}")}})
		return err
	}
	if err := update(); err != nil {
		t.Errorf("while it waits: %v", err)
	}
	giveUp()
	if err := update(); status.Code(err) != codes.Canceled {
		t.Errorf("afterwards: %v", err)
	}
}

// An exec that is killed or deleted while it starts is ended with its start.
func TestEndOfAnExecThatStarts(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *Pod) error{
		"killed": func(_ *testing.T, pod *Pod) error {
			return pod.kill(&taskapi.KillRequest{ID: "c", ExecID: "e", Signal: uint32(unix.SIGKILL)})
		},
		"deleted": func(t *testing.T, pod *Pod) error {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if _, err := pod.delete(ctx, "c", "e"); !errors.Is(err, context.DeadlineExceeded) {
				return errors.Join(errors.New("the delete does not wait"), err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod, runtime := testPod(t)
			release, started := startHeldExec(t, pod, runtime)
			if err := pod.kill(&taskapi.KillRequest{ID: "c", ExecID: "e", Signal: uint32(unix.SIGTERM)}); !errdefs.IsFailedPrecondition(err) {
				t.Errorf("another signal: %v", err)
			}
			if err := end(t, pod); err != nil {
				t.Error(err)
			}
			release()
			if err := <-started; !errdefs.IsUnavailable(err) {
				t.Errorf("start: %v", err)
			}
			checkDoomed(t, pod, runtime.last)
			if name == "killed" {
				if _, err := pod.delete(t.Context(), "c", "e"); err != nil {
					t.Errorf("delete: %v", err)
				}
			}
			for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
				if _, _, err := pod.process("c", "e"); errdefs.IsNotFound(err) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("the exec is not removed")
				}
			}
			addExec(t, pod) // its id is free
		})
	}
}

func isDoomed(p *process) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.doomed
}

// A deletion waits for the end of the exec's start.
func TestDeleteOfAnExecThatStarts(t *testing.T) {
	pod, runtime := testPod(t)
	release, started := startHeldExec(t, pod, runtime)
	deleted := make(chan error, 1)
	go func() {
		_, err := pod.delete(t.Context(), "c", "e")
		deleted <- err
	}()
	_, exec, err := pod.process("c", "e")
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); !isDoomed(exec) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	select {
	case err := <-deleted:
		t.Errorf("deleted while it starts: %v", err)
		deleted <- err
	case <-time.After(20 * time.Millisecond):
	}
	release()
	if err := <-started; !errdefs.IsUnavailable(err) {
		t.Errorf("start: %v", err)
	}
	if err := <-deleted; err != nil {
		t.Errorf("delete: %v", err)
	}
	checkDoomed(t, pod, runtime.last)
}

// startHeldExec starts the exec "e" of a new container "c". It returns when the
// runtime does so, which lasts until release is called.
func startHeldExec(t *testing.T, pod *Pod, runtime *fakeRuntime) (release func(), started <-chan error) {
	t.Helper()
	startContainer(t, pod, "c")
	addExec(t, pod)
	begun, release := runtime.last.holdExec()
	done := make(chan error, 1)
	go func() {
		_, err := pod.start(t.Context(), "c", "e")
		done <- err
	}()
	<-begun
	runtime.last.onExec = nil
	return release, done
}

// checkDoomed checks that the container's only exec was killed and waited for, and that
// no exit is reported.
func checkDoomed(t *testing.T, pod *Pod, c *fakeContainer) {
	t.Helper()
	exec := c.process("e")
	if !slices.Equal(exec.signals, []syscall.Signal{unix.SIGKILL}) {
		t.Errorf("signals %v", exec.signals)
	}
	select {
	case <-exec.reaped:
	default:
		t.Error("it is not waited for")
	}
	if events := told(pod); len(events) != 0 {
		t.Errorf("events %v", events)
	}
}
