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
// has created a sandbox.
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
	p.unusedAfter = 300 * time.Millisecond
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	d := &briefly{after: p.unusedAfter, terminate: cancel, ended: make(chan error, 1)}
	go func() { d.ended <- ServeOn(ctx, p, host.Platform(), listener) }()
	conn, err := net.Dial("unix", address)
	if err != nil {
		t.Fatal(err)
	}
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
	case <-time.After(3 * d.after):
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

// A daemon that is not used ends when no engine is connected any more. An engine that
// takes its time between CreateSandbox and StartSandbox finds it.
func TestUnusedDaemonEnds(t *testing.T) {
	d := serveBriefly(t)
	defer d.terminate()
	d.checkStays(t)
	if err := d.disconnect(); err != nil {
		t.Error(err)
	}
	d.checkEnds(t)
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
