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
	"golang.org/x/sys/unix"
)

// The engine removes the bundle before the daemon has ended, as iSulad does: the
// daemon still removes its socket.
func TestSocketGoesWithoutTheBundle(t *testing.T) {
	host := newHost(t)
	asDaemon(t, host.RunDir)
	p := newParams(t, host.RunDir, "pod", nil)
	address, err := start(p)
	if err != nil {
		t.Fatal(err)
	}
	pid := daemonPID(t, p)
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
	pid := daemonPID(t, p)
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

// When the pod's first container is deleted before another one, "delete" leaves
// the shim running until that one is deleted too.
func TestDeleteLeavesOthersTheirShim(t *testing.T) {
	host := newHost(t)
	asDaemon(t, host.RunDir)
	first := newParams(t, host.RunDir, "pod", map[string]string{
		"io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.sandbox-id": "pod",
	})
	second := newParams(t, host.RunDir, "c1", serviceOf("pod"))
	address, err := start(first)
	if err != nil {
		t.Fatal(err)
	}
	pid := daemonPID(t, first)
	service := connect(t, address)
	for _, p := range []*Params{first, second} {
		if _, err := service.Create(t.Context(), &task.CreateTaskRequest{ID: p.ID, Bundle: p.Bundle}); err != nil {
			t.Fatal(err)
		}
		if _, err := service.Start(t.Context(), &task.StartRequest{ID: p.ID}); err != nil {
			t.Fatal(err)
		}
	}
	end := func(p *Params) {
		t.Helper()
		_, _ = service.Kill(t.Context(), &task.KillRequest{ID: p.ID, Signal: 9}) // it may have ended with the pod
		if _, err := service.Wait(t.Context(), &task.WaitRequest{ID: p.ID}); err != nil {
			t.Error(err)
		}
		if _, err := service.Delete(t.Context(), &task.DeleteRequest{ID: p.ID}); err != nil {
			t.Error(err)
		}
		if _, err := service.Shutdown(t.Context(), &task.ShutdownRequest{ID: p.ID}); err != nil {
			t.Error(err)
		}
	}
	end(first)
	remove(t, first, host)
	if state, err := service.State(t.Context(), &task.StateRequest{ID: "c1"}); err != nil || state.ExitStatus == 0 {
		t.Errorf("the other container: %v, %v", state, err)
	}
	end(second)
	remove(t, second, host)
	reap(t, pid)
}
