package network

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// savingDaemon starts a containerd whose pods can be saved.
func savingDaemon(t *testing.T) (context.Context, *harness.Daemon) {
	t.Helper()
	needVM(t)
	r, err := harness.FindRelease(bed.layout, release)
	if err != nil {
		t.Fatal(err)
	}
	d, err := harness.Start(t.Context(), harness.Options{
		Layout: bed.layout, Release: r, Runtime: bed.runtime,
		Kata: harness.KataConfig{QEMU: bed.layout.SavingQEMU(t), Virtiofsd: harness.OwnVirtiofs},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(d.LogTail(60))
		}
		removed(t, "daemon", d.Stop)
	})
	ctx, cancel := context.WithTimeout(d.Context(t.Context()), testTimeout)
	t.Cleanup(cancel)
	return ctx, d
}

// A connection from outside outlives a checkpoint, as a short outage, and a copy in
// another network namespace is reached at its own address and reaches out.
func TestCheckpoint(t *testing.T) {
	ctx, d := savingDaemon(t)
	bridge := newBridge(t, d, 0)
	ns := newNetns(t, d)
	end := bridge.join(t, ns, "eth0")
	ns.do(t, `ip rule add to 198.51.100.0/24 prohibit priority 50
		ip rule add to 203.0.113.0/24 lookup 99 priority 51
		ip route add unreachable default table 99`)
	cfg := probeConfig(servers...)
	cfg.Spec = append(cfg.Spec, inNetns(ns))
	c, err := d.Create(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removed(t, "container", c.Remove) })
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	awaitReady(ctx, t, c.Out, c.Err)
	conn := dialEcho(t, end)
	echoes(t, conn, "before")
	image, err := c.Checkpoint(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	echoes(t, conn, "after")
	echoes(t, dialEcho(t, end), "new")

	other := newNetns(t, d)
	otherEnd := bridge.join(t, other, "eth0")
	other.do(t, `ip rule add to 198.51.100.0/24 lookup 98 priority 50
		ip route add blackhole default table 98`)
	r, err := d.Restore(ctx, "copy", image, harness.Stdio{}, inNetns(other))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removed(t, "restored container", r.Remove) })
	if err := r.Start(ctx); err != nil {
		t.Fatal(err)
	}
	echoes(t, dialEcho(t, otherEnd), "to the copy")
	echoes(t, conn, "to the original")
	eventually(ctx, t, "the network of the copy", must(t, other.state), func() (string, error) { return runIn(ctx, r, "/probe/probe", "state") })
	if out, err := runIn(ctx, r, "/probe/probe", "check", "tcp://"+net.JoinHostPort(end.addrs()[0].String(), "7000")+"?bytes=100000"); err != nil {
		t.Errorf("from the copy to the original: %v: %s", err, out)
	}
}

// dialEcho connects to the pod's echo server.
func dialEcho(t *testing.T, e *lease) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(e.addrs()[0].String(), "7000"), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}
