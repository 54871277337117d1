package manager

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	sandboxapi "github.com/containerd/containerd/api/runtime/sandbox/v1"
	"github.com/containerd/ttrpc"
)

// briefly is a daemon that does not wait long for its engine, and its only client, which
// is connected from the beginning and has created a sandbox.
type briefly struct {
	sandboxapi.TTRPCSandboxService
	after      time.Duration
	disconnect func() error
	terminate  func()
	ended      chan error
}

func serveBriefly(t *testing.T) *briefly {
	t.Helper()
	host := newHost(t)
	listener, err := net.Listen("unix", filepath.Join(host.RunDir, "shim.sock"))
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	p := newParams(t, host.RunDir, "pod", nil)
	p.unusedAfter = 2 * time.Second
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	d := &briefly{after: p.unusedAfter, terminate: cancel, ended: make(chan error, 1)}
	conn, err := net.Dial("unix", address) // the daemon finds it waiting
	if err != nil {
		t.Fatal(err)
	}
	go func() { d.ended <- ServeOn(ctx, p, host.Platform(), listener) }()
	client := ttrpc.NewClient(conn)
	d.TTRPCSandboxService, d.disconnect = sandboxapi.NewTTRPCSandboxClient(client), client.Close
	if _, err := d.CreateSandbox(t.Context(), &sandboxapi.CreateSandboxRequest{SandboxID: "pod", BundlePath: p.Bundle}); err != nil {
		t.Error(err)
	}
	return d
}

// checkStays checks that the daemon does not end for some time.
func (d *briefly) checkStays(t *testing.T) {
	t.Helper()
	select {
	case err := <-d.ended:
		t.Fatalf("the daemon has ended: %v", err)
	case <-time.After(2 * d.after):
	}
}

func (d *briefly) checkEnds(t *testing.T) {
	t.Helper()
	select {
	case err := <-d.ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the daemon does not end")
	}
}

// A daemon that is not used ends when no engine is connected any more, and does not begin
// to before. An engine that takes its time between CreateSandbox and StartSandbox finds it.
func TestUnusedDaemonEnds(t *testing.T) {
	d := serveBriefly(t)
	defer d.terminate()
	d.checkStays(t)
	began := time.Now()
	if err := d.disconnect(); err != nil {
		t.Error(err)
	}
	d.checkEnds(t)
	if took := time.Since(began); took < d.after {
		t.Errorf("it has ended %v after its engine has disconnected, want %v at least", took, d.after)
	}
}

// A daemon with a pod waits for its engine.
func TestUsedDaemonStays(t *testing.T) {
	d := serveBriefly(t)
	if _, err := d.StartSandbox(t.Context(), &sandboxapi.StartSandboxRequest{SandboxID: "pod"}); err != nil {
		t.Error(err)
	}
	if err := d.disconnect(); err != nil {
		t.Error(err)
	}
	d.checkStays(t)
	d.terminate()
	d.checkEnds(t)
}
