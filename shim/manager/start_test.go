package manager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/shim/shimtest/files"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// asDaemon makes daemons that are started serve a guest in memory.
func asDaemon(t *testing.T, runDir string) {
	t.Helper()
	t.Setenv(roleEnv, roleDaemon)
	t.Setenv(runDirEnv, runDir)
	files.Configure(t, "")
}

// newDaemon starts a daemon with a guest in memory for the container "pod", which an engine
// can create.
func newDaemon(t *testing.T, host *fakeguest.Host) (p *Params, address string, pid int) {
	t.Helper()
	asDaemon(t, host.RunDir)
	p = newParams(t, host.RunDir, "pod", nil)
	address, err := start(p)
	if err != nil {
		t.Fatal(err)
	}
	return p, address, files.ShimPID(t, p.Bundle)
}

func connect(t *testing.T, address string) task.TTRPCTaskService {
	t.Helper()
	return task.NewTTRPCTaskClient(dial(t, address))
}

func dial(t *testing.T, address string) *ttrpc.Client {
	t.Helper()
	conn, err := net.Dial("unix", socketPath(address))
	if err != nil {
		t.Fatal(err)
	}
	client := ttrpc.NewClient(conn)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A pod's life from an engine's start to its Shutdown, with a real daemon
// process.
func TestStart(t *testing.T) {
	host := newHost(t)
	asDaemon(t, host.RunDir)
	p := newParams(t, host.RunDir, "pod", map[string]string{"io.kubernetes.cri.container-type": "sandbox"})
	var out bytes.Buffer
	if err := Start(p, strings.NewReader(""), &out); err != nil {
		t.Fatal(err)
	}
	pid := files.ShimPID(t, p.Bundle)
	ended := false
	t.Cleanup(func() {
		if !ended {
			killChild(t, pid)
		}
	})
	address, err := bundle.Address(p.Bundle)
	if err != nil || out.String() != address || address != socketAddress(p) {
		t.Errorf("answered %q; the bundle holds %q, %v", out.String(), address, err)
	}
	if _, err := startDaemon(p); err == nil || !strings.Contains(err.Error(), "is running") {
		t.Errorf("a second daemon: %v", err)
	}
	c1 := newParams(t, host.RunDir, "c1", serviceOf("pod"))
	out.Reset()
	if err := Start(c1, bytes.NewReader(encode(t, &bootapi.BootstrapParams{InstanceID: "c1"})), &out); err != nil {
		t.Fatal(err)
	}
	var result bootapi.BootstrapResult
	if err := proto.Unmarshal(out.Bytes(), &result); err != nil || result.Address != address {
		t.Errorf("the service container's address is %v, %v", &result, err)
	}
	service, ctx := connect(t, address), t.Context()
	for _, params := range []*Params{p, c1} {
		if _, err := service.Create(ctx, &task.CreateTaskRequest{ID: params.ID, Bundle: params.Bundle}); err != nil {
			t.Fatal(err)
		}
		if _, err := service.Start(ctx, &task.StartRequest{ID: params.ID}); err != nil {
			t.Fatal(err)
		}
	}
	connected, err := service.Connect(ctx, &task.ConnectRequest{ID: "c1"})
	if err != nil || connected.ShimPid != uint32(pid) {
		t.Errorf("connected to %v, %v", connected, err)
	}
	for _, id := range []string{"c1", "pod"} {
		if _, err := service.Kill(ctx, &task.KillRequest{ID: id, Signal: 9}); err != nil {
			t.Error(err)
		}
		if waited, err := service.Wait(ctx, &task.WaitRequest{ID: id}); err != nil || waited.ExitStatus != 137 {
			t.Errorf("waited %v, %v", waited, err)
		}
		if _, err := service.Delete(ctx, &task.DeleteRequest{ID: id}); err != nil {
			t.Error(err)
		}
	}
	_, err = service.State(ctx, &task.StateRequest{ID: "pod"})
	if !errdefs.IsNotFound(errgrpc.ToNative(err)) {
		t.Errorf("state of what is gone: %v", err)
	}
	// The daemon may be gone before its answer is sent: engines handle that.
	if _, err := service.Shutdown(ctx, &task.ShutdownRequest{ID: "pod"}); err != nil && !errors.Is(err, ttrpc.ErrClosed) {
		t.Error(err)
	}
	reap(t, pid)
	ended = true
	if exists(socketPath(address)) {
		t.Error("the socket is left")
	}
}

func killChild(t *testing.T, pid int) {
	t.Helper()
	if process, err := os.FindProcess(pid); err == nil {
		_ = process.Kill()
	}
	reap(t, pid)
}

// SIGTERM ends a daemon cleanly, with a pod in it.
func TestDaemonIsTerminated(t *testing.T) {
	host := newHost(t)
	p, address, pid := newDaemon(t, host)
	service := connect(t, address)
	if _, err := service.Create(t.Context(), &task.CreateTaskRequest{ID: "pod", Bundle: p.Bundle}); err != nil {
		killChild(t, pid)
		t.Fatal(err)
	}
	waited := make(chan string, 1)
	go func() {
		resp, err := service.Wait(context.Background(), &task.WaitRequest{ID: "pod"})
		waited <- fmt.Sprintf("%d %v", resp.GetExitStatus(), err)
	}()
	process, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	reap(t, pid)
	select {
	case got := <-waited:
		// The call may fail because the shim is gone, but must not be answered
		// wrongly.
		if got != "137 <nil>" && !strings.HasSuffix(got, ttrpc.ErrClosed.Error()) {
			t.Errorf("the wait was answered with %s", got)
		}
	case <-time.After(20 * time.Second):
		t.Error("the wait was not answered")
	}
	if exists(socketPath(address)) {
		t.Error("the socket is left")
	}
}

// Delete cleans up after a killed daemon.
func TestDeleteAfterKill(t *testing.T) {
	host := newHost(t)
	p, address, pid := newDaemon(t, host)
	_, err := connect(t, address).Create(t.Context(), &task.CreateTaskRequest{ID: "pod", Bundle: p.Bundle})
	killChild(t, pid)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		remove(t, p, host)
	}
	if exists(socketPath(address)) {
		t.Error("the socket is left")
	}
}

func TestJoinSandbox(t *testing.T) {
	dir := shortDir(t)
	p := newParams(t, dir, "c1", serviceOf("pod"))
	if _, err := start(p); err == nil || !strings.Contains(err.Error(), "sandbox pod") {
		t.Errorf("no sandbox: %v", err)
	}
	sandbox := filepath.Join(dir, "bundles", "pod")
	if err := os.MkdirAll(sandbox, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := start(p); err == nil || !strings.Contains(err.Error(), "find sandbox pod of container c1") {
		t.Errorf("a sandbox without an address: %v", err)
	}
	address := bundle.AddressScheme + filepath.Join(dir, "x.sock")
	write(t, sandbox, bundle.AddressFile, address)
	if _, err := start(p); err == nil || !strings.Contains(err.Error(), "shim of sandbox pod of container c1 does not run") {
		t.Errorf("a sandbox whose shim is dead: %v", err)
	}
	l, err := listen(address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got, err := start(p)
	if err != nil || got != address {
		t.Errorf("joined %q, %v", got, err)
	}
	if own, err := bundle.Address(p.Bundle); own != address {
		t.Errorf("the container's own address is %q, %v", own, err)
	}
	// A prefix of the id suffices if it matches only one sandbox.
	if got, err := start(newParams(t, dir, "c2", serviceOf("po"))); err != nil || got != address {
		t.Errorf("joined %q, %v", got, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "bundles", "pod2"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := start(newParams(t, dir, "c3", serviceOf("po"))); err == nil || !strings.Contains(err.Error(), "2 sandboxes") {
		t.Errorf("an ambiguous sandbox: %v", err)
	}
}

func TestStartFails(t *testing.T) {
	t.Setenv(roleEnv, roleSleep)
	tests := []struct {
		name    string
		arrange func(*Params)
		want    string
	}{
		{"not a spec", func(p *Params) { write(t, p.Bundle, "config.json", "{") }, "config.json"},
		{"unknown kind", func(p *Params) {
			if err := fakeguest.WriteBundle(p.Bundle, map[string]string{"io.kubernetes.cri.container-type": "vm"}); err != nil {
				t.Fatal(err)
			}
		}, `"vm"`},
		{"no place for the socket", func(p *Params) { p.SocketDir = "/dev/null/x" }, "make socket directory"},
		{"no bundle", func(p *Params) { p.Bundle = filepath.Join(p.Bundle, "none") }, "start daemon"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newParams(t, shortDir(t), "pod", nil)
			tt.arrange(p)
			var out bytes.Buffer
			err := Start(p, strings.NewReader(""), &out)
			if err == nil || !strings.Contains(err.Error(), tt.want) || out.Len() > 0 {
				t.Errorf("answered %q, %v; want an error that names %q", out.String(), err, tt.want)
			}
			if exists(socketPath(socketAddress(p))) {
				t.Error("the socket is left")
			}
		})
	}
	p := newParams(t, shortDir(t), "pod", nil)
	if err := Start(p, io.MultiReader(strings.NewReader("x"), &failingReader{}), new(bytes.Buffer)); err == nil {
		t.Error("a stdin that cannot be read is no error")
	}
}

type failingReader struct{}

func (*failingReader) Read([]byte) (int, error) { return 0, errInjected }
