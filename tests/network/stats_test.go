package network

import (
	"context"
	"testing"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/typeurl/v2"

	"github.com/katabox/katabox/tests/harness"
)

// Containers' metrics count what went over the pod's interface.
func TestMetricsCountTraffic(t *testing.T) {
	needVM(t) // containerd 2.4's runc shim counts cgroups only
	ctx, d := begin(t)
	ns := newNetns(t, d)
	l := newBridge(t, d, 0).join(t, ns, "eth0")
	p := newPod(ctx, t, d, ns)
	containers := map[string]*harness.Container{"pause": p.Sandbox, "service": p.box}
	before := map[string]counters{}
	for name, c := range containers {
		before[name] = eth0Counters(ctx, t, c)
	}
	netns("").checks(t, targets(1500, l.addr4)...) // 1 MiB there and back
	for name, c := range containers {
		now := eth0Counters(ctx, t, c)
		if got := now.GetRxBytes() - before[name].GetRxBytes(); got < 1<<20 || got > 2<<20 {
			t.Errorf("%s: %d bytes received, want 1 MiB and some headers", name, got)
		}
		if got := now.GetTxBytes() - before[name].GetTxBytes(); got < 1<<20 || got > 2<<20 {
			t.Errorf("%s: %d bytes sent, want 1 MiB and some headers", name, got)
		}
		if now.GetRxPackets() <= before[name].GetRxPackets() || now.GetTxPackets() <= before[name].GetTxPackets() {
			t.Errorf("%s: packets were %v and are %v", name, before[name], now)
		}
	}
}

// counters are an interface's, in the format of either cgroup version.
type counters interface {
	GetName() string
	GetRxBytes() uint64
	GetRxPackets() uint64
	GetTxBytes() uint64
	GetTxPackets() uint64
}

// eth0Counters returns those of a container's metrics.
func eth0Counters(ctx context.Context, t *testing.T, c *harness.Container) counters {
	t.Helper()
	metric, err := c.Task.Metrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	value, err := typeurl.UnmarshalAny(metric.Data)
	if err != nil {
		t.Fatal(err)
	}
	var all []counters
	switch m := value.(type) {
	case *v1.Metrics:
		for _, n := range m.GetNetwork() {
			all = append(all, n)
		}
	case *v2.Metrics:
		for _, n := range m.GetNetwork() {
			all = append(all, n)
		}
	default:
		t.Fatalf("metrics are %T, want those of cgroup v1 or v2", value)
	}
	for _, n := range all {
		if n.GetName() == "eth0" {
			return n
		}
	}
	t.Fatalf("metrics of %s have no eth0: %v", c.Box.ID(), all)
	return nil
}
