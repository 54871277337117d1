package manager

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	task "github.com/containerd/containerd/api/runtime/task/v3"

	"github.com/katabox/katabox/shim/management"
)

func TestActions(t *testing.T) {
	for method, want := range map[string]string{
		"/containerd.task.v3.Task/Create": "create", "/containerd.task.v3.Task/CloseIO": "close_io",
		"/containerd.task.v3.Task/ResizePty": "resize_pty", "/containerd.runtime.sandbox.v1.Sandbox/StartSandbox": "start_sandbox",
	} {
		if got := action(method); got != want {
			t.Errorf("%s: %s, want %s", method, got, want)
		}
	}
}

// A pod's metrics can be read from the socket in its record's directory while it
// runs.
func TestManagementSocket(t *testing.T) {
	host := newHost(t)
	p, address, pid := newDaemon(t, host)
	service := connect(t, address)
	if _, err := service.Create(t.Context(), &task.CreateTaskRequest{ID: p.ID, Bundle: p.Bundle}); err != nil {
		t.Fatal(err)
	}
	sockets, err := filepath.Glob(filepath.Join(host.Platform().StateDir(), "*", management.SocketName))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("sockets: %v, %v", sockets, err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", sockets[0])
	}}}
	resp, err := client.Get("http://pod/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	for _, want := range []string{
		`kata_shim_rpc_durations_histogram_milliseconds_count{action="create"} 1`, `kata_shim_boot_step_seconds{step="guest"}`, "kata_shim_agent_up 1",
	} {
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%v, without %s:\n%s", err, want, body)
		}
	}
	_, _ = service.Kill(t.Context(), &task.KillRequest{ID: p.ID, Signal: 9})
	if _, err := service.Delete(t.Context(), &task.DeleteRequest{ID: p.ID}); err != nil {
		t.Error(err)
	}
	if _, err := service.Shutdown(t.Context(), &task.ShutdownRequest{ID: p.ID}); err != nil {
		t.Error(err)
	}
	reap(t, pid)
	if exists(sockets[0]) {
		t.Error("the management socket is left")
	}
}
