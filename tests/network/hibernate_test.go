package network

import (
	"context"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// A connection from outside outlives its pod's hibernation, which ends when
// something comes on it, or on one that the engine forwards to the pod's loopback.
func TestConnectionsOutliveHibernation(t *testing.T) {
	if !bed.runtime.VM {
		t.Skip("runc's containers do not hibernate")
	}
	ctx, d := begin(t)
	ns := newNetns(t, d)
	end := newBridge(t, d, 0).join(t, ns, "eth0")
	p, err := d.NewPod(ctx, "pod", inNetns(ns))
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
	hibernate(ctx, t, d, id)
	echoes(t, conn, "meanwhile")
	hibernate(ctx, t, d, id)
	ns.checks(t, "tcp://127.0.0.1:7001?bytes=1")
	echoes(t, conn, "after")
	hibernate(ctx, t, d, id)
	if out, err := kataRuntime(ctx, d, "wake", id); err != nil {
		t.Errorf("kata-runtime wake: %v: %s", err, out)
	}
	echoes(t, conn, "again")
}

// hibernate has the pod hibernate. It is busy while acknowledgements of what was
// sent before come in.
func hibernate(ctx context.Context, t *testing.T, d *harness.Daemon, id string) {
	t.Helper()
	for {
		out, err := kataRuntime(ctx, d, "hibernate", id)
		if err == nil {
			return
		}
		if !strings.Contains(string(out), "it is busy") {
			t.Fatalf("kata-runtime hibernate: %v: %s", err, out)
		}
		time.Sleep(100 * time.Millisecond)
	}
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

func kataRuntime(ctx context.Context, d *harness.Daemon, args ...string) ([]byte, error) {
	return exec.CommandContext(ctx, filepath.Join(d.Layout().Bin(), "kata-runtime"), args...).CombinedOutput()
}
