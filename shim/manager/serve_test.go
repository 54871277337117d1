package manager

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/shimtest/files"
)

// The engine removes the bundle before the daemon has ended, as iSulad does: the
// daemon still removes its socket.
func TestSocketGoesWithoutTheBundle(t *testing.T) {
	host := newHost(t)
	p, address, pid := newDaemon(t, host)
	service := connect(t, address)
	if _, err := service.Connect(t.Context(), &task.ConnectRequest{ID: "pod"}); err != nil {
		t.Error(err) // it does not serve yet
	}
	if err := os.RemoveAll(p.Bundle); err != nil {
		t.Error(err)
	}
	if _, err := service.Shutdown(t.Context(), &task.ShutdownRequest{ID: "pod"}); err != nil {
		t.Errorf("the request that ends the shim has no answer: %v", err)
	}
	reap(t, pid)
	if exists(socketPath(address)) {
		t.Error("the socket is left")
	}
}

// A daemon bounds its heap, unless its environment does.
func TestHeapIsBounded(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	for limit, want := range map[string]int64{"": 384 << 20, "1GiB": math.MaxInt64} {
		t.Setenv("GOMEMLIMIT", limit)
		debug.SetMemoryLimit(math.MaxInt64) // the test's runtime has read its environment long ago
		host := newHost(t)
		listener, err := net.Listen("unix", filepath.Join(host.RunDir, "shim.sock"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // the daemon ends at once
		if err := ServeOn(ctx, newParams(t, host.RunDir, "pod", nil), host.Platform(), listener); err != nil {
			t.Error(err)
		}
		if got := debug.SetMemoryLimit(-1); got != want {
			t.Errorf("with GOMEMLIMIT=%q the limit is %d, want %d", limit, got, want)
		}
	}
}

// Descriptors that an engine left open in the start process are not inherited by
// the daemon.
func TestDaemonInheritsNothing(t *testing.T) {
	host := newHost(t)
	asDaemon(t, host.RunDir)
	p := newParams(t, host.RunDir, "pod", nil)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	leaked, err := unix.Dup(int(w.Fd())) // without O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	address, err := start(p)
	_ = unix.Close(leaked)
	if err != nil {
		t.Fatal(err)
	}
	pid := files.ShimPID(t, p.Bundle)
	service := connect(t, address)
	if _, err := service.Connect(t.Context(), &task.ConnectRequest{ID: "pod"}); err != nil {
		t.Error(err) // it does not serve yet
	}
	if err := r.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the daemon holds a file of the engine's: read %d bytes, %v", n, err)
	}
	if _, err := service.Shutdown(t.Context(), &task.ShutdownRequest{ID: "pod"}); err != nil {
		t.Error(err)
	}
	reap(t, pid)
}

// livePod is a pod in a daemon, with the sandbox's container and another, "c1".
type livePod struct {
	task.TTRPCTaskService
	first, second *Params
	pid           int
}

func newLivePod(t *testing.T, dir string) *livePod {
	t.Helper()
	asDaemon(t, dir)
	p := &livePod{
		first: newParams(t, dir, "pod", map[string]string{
			"io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.sandbox-id": "pod",
		}),
		second: newParams(t, dir, "c1", serviceOf("pod")),
	}
	address, err := start(p.first)
	if err != nil {
		t.Fatal(err)
	}
	p.pid, p.TTRPCTaskService = files.ShimPID(t, p.first.Bundle), connect(t, address)
	for _, c := range []*Params{p.first, p.second} {
		if _, err := p.Create(t.Context(), &task.CreateTaskRequest{ID: c.ID, Bundle: c.Bundle}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Start(t.Context(), &task.StartRequest{ID: c.ID}); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// end ends a container as an engine does.
func (p *livePod) end(t *testing.T, id string) {
	t.Helper()
	_, _ = p.Kill(t.Context(), &task.KillRequest{ID: id, Signal: 9}) // it may have ended with the pod
	if _, err := p.Wait(t.Context(), &task.WaitRequest{ID: id}); err != nil {
		t.Error(err)
	}
	if _, err := p.Delete(t.Context(), &task.DeleteRequest{ID: id}); err != nil {
		t.Error(err)
	}
	if _, err := p.Shutdown(t.Context(), &task.ShutdownRequest{ID: id}); err != nil {
		t.Error(err)
	}
}

// checkRuns checks that a container runs.
func (p *livePod) checkRuns(t *testing.T, id string) {
	t.Helper()
	if state, err := p.State(t.Context(), &task.StateRequest{ID: id}); err != nil || state.Pid == 0 || state.ExitedAt.IsValid() {
		t.Errorf("container %s: %v, %v", id, state, err)
	}
}

// checkGone checks that the shim does not have a container.
func (p *livePod) checkGone(t *testing.T, id string) {
	t.Helper()
	if state, err := p.State(t.Context(), &task.StateRequest{ID: id}); !errdefs.IsNotFound(errgrpc.ToNative(err)) {
		t.Errorf("container %s: %v, %v", id, state, err)
	}
}

// When the pod's first container is deleted before another one, "delete" leaves
// the shim running until that one is deleted too.
func TestDeleteLeavesOthersTheirShim(t *testing.T) {
	host := newHost(t)
	pod := newLivePod(t, host.RunDir)
	pod.end(t, "pod")
	remove(t, pod.first, host)
	if state, err := pod.State(t.Context(), &task.StateRequest{ID: "c1"}); err != nil || state.ExitStatus == 0 {
		t.Errorf("the other container: %v, %v", state, err)
	}
	pod.end(t, "c1")
	remove(t, pod.second, host)
	reap(t, pod.pid)
}

// A container that its shim still runs, for an engine that was restarted while the
// shim did not answer, is ended by its delete, and no other is.
func TestDeleteEndsARunningContainer(t *testing.T) {
	host := newHost(t)
	pod := newLivePod(t, host.RunDir)
	for _, created := range []bool{false, true} { // its create failed, or it was not started
		other := newParams(t, host.RunDir, "c2", serviceOf("pod"))
		if created {
			if _, err := pod.Create(t.Context(), &task.CreateTaskRequest{ID: "c2", Bundle: other.Bundle}); err != nil {
				t.Fatal(err)
			}
		}
		remove(t, other, host)
		pod.checkGone(t, "c2")
	}
	pod.checkRuns(t, "pod")
	pod.checkRuns(t, "c1")
	if resp := remove(t, pod.second, host); resp.Pid == 0 {
		t.Error("the answer has no pid")
	}
	pod.checkGone(t, "c1")
	remove(t, pod.second, host)
	pod.checkRuns(t, "pod")
	pod.end(t, "pod")
	remove(t, pod.first, host)
	reap(t, pod.pid)
}

// The last container's delete ends a shim that has deleted the sandbox's own.
func TestDeleteEndsTheLastContainer(t *testing.T) {
	host := newHost(t)
	pod := newLivePod(t, host.RunDir)
	pod.end(t, "pod")
	remove(t, pod.first, host)
	remove(t, pod.second, host)
	reap(t, pod.pid)
}

// A shim whose pod has ended, and whose only container left was made for an engine that
// has forgotten it, is ended by the delete of the pod's own.
func TestDeleteEndsAShimOfForgottenContainers(t *testing.T) {
	host := newHost(t)
	pod := newLivePod(t, host.RunDir)
	pod.end(t, "pod")
	if err := os.RemoveAll(pod.second.Bundle); err != nil {
		t.Fatal(err)
	}
	remove(t, pod.first, host)
	reap(t, pod.pid)
}

// The delete of the sandbox's own container ends a shim that still has it, with
// the containers that it serves.
func TestDeleteEndsALivePod(t *testing.T) {
	host := newHost(t)
	pod := newLivePod(t, host.RunDir)
	remove(t, pod.first, host)
	if _, err := pod.State(t.Context(), &task.StateRequest{ID: "c1"}); err == nil {
		t.Error("the shim answers")
	}
	reap(t, pod.pid)
	remove(t, pod.second, host)
}
