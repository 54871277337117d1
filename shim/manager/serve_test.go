package manager

import (
	"os"
	"testing"

	task "github.com/containerd/containerd/api/runtime/task/v3"
)

// The engine removes the bundle while the daemon still ends, as iSulad does:
// its socket goes all the same.
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
	// The answer may not come.
	_, _ = service.Shutdown(t.Context(), &task.ShutdownRequest{ID: "pod"})
	reap(t, pid)
	if exists(socketPath(address)) {
		t.Error("the socket is left")
	}
}
