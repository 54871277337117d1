package network

import (
	"context"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/katabox/katabox/tests/harness"
)

// A connection from outside outlives its pod's hibernation, if both ends have the
// patience; one that the engine forwards to the pod's loopback wakes it.
func TestConnectionsOutliveHibernation(t *testing.T) {
	if !bed.runtime.VM {
		t.Skip("runc's containers do not hibernate")
	}
	ctx, d := begin(t)
	ns := newNetns(t, d)
	end := newBridge(t, d, 0).join(t, ns, "eth0")
	// Pods of one template share their memory, and cannot hibernate.
	own := oci.WithAnnotations(map[string]string{"io.katacontainers.config.factory.enable_template": "false"})
	p, err := d.NewPod(ctx, "pod", inNetns(ns), own)
	if err != nil {
		t.Fatalf("make pod: %v", err)
	}
	t.Cleanup(func() { removed(t, "pod", p.Remove) })
	serving(ctx, t, p, append(servers, "tcp://127.0.0.1:7001")...)
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(end.addrs()[0].String(), "7000"), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	echoes(t, conn, "before")
	id := p.Sandbox.Box.ID()
	kataRuntime(ctx, t, d, "hibernate", id)
	if _, err := conn.Write([]byte("meanwhile")); err != nil {
		t.Fatal(err)
	}
	ns.checks(t, "tcp://127.0.0.1:7001?bytes=1") // wakes the pod
	reads(t, conn, "meanwhile")
	echoes(t, conn, "after")
	kataRuntime(ctx, t, d, "hibernate", id)
	kataRuntime(ctx, t, d, "wake", id)
	echoes(t, conn, "again")
}

// echoes checks that the other end sends text back.
func echoes(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	reads(t, conn, text)
}

func reads(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
		t.Fatalf("read %q, %v, want %q", got, err, text)
	}
}

func kataRuntime(ctx context.Context, t *testing.T, d *harness.Daemon, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(ctx, filepath.Join(d.Layout().Bin(), "kata-runtime"), args...).CombinedOutput(); err != nil {
		t.Fatalf("kata-runtime %v: %v: %s", args, err, out)
	}
}
