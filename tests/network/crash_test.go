package network

import (
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// When a part of a pod is killed and containerd has removed the pod, the
// namespace is as it was before: taps, queues, filters and changes to links are
// gone, and CNI's links and addresses are left.
func TestNamespaceAfterDeath(t *testing.T) {
	needVM(t)
	for _, test := range []struct{ name, config, victim string }{
		{"shim, tcfilter and rates", rated, harness.KindShim},
		{"QEMU, tcfilter and rates", rated, harness.KindVMM},
		{"shim, macvtap and rates", macvtap + rated, harness.KindShim},
		{"QEMU, macvtap and rates", macvtap + rated, harness.KindVMM},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, d := begin(t)
			configure(t, d, test.config)
			ns := newNetns(t, d)
			l := newBridge(t, d, 0).join(t, ns, "eth0")
			before := settled(ctx, t, ns)
			recorder := d.Record(ctx)
			defer recorder.Close()
			p := newPod(ctx, t, d, ns)
			netns("").checks(t, targets(1500, l.addr4)[1:]...)
			killOne(t, d, test.victim)
			for _, c := range []*harness.Container{p.box, p.Sandbox} {
				if _, err := recorder.Await(ctx, c.Box.ID(), "exit"); err != nil {
					t.Fatal(err)
				}
			}
			removed(t, "pod", p.Remove)
			eventually(ctx, t, "the namespace after the pod", before, ns.all)
		})
	}
}

// Configurations: macvtaps, and rate limits, which change the links' root
// queues too.
const (
	macvtap = "[runtime]\ninternetworking_model = \"macvtap\"\n"
	rated   = "[hypervisor.qemu]\nrx_rate_limiter_max_rate = 50000000\ntx_rate_limiter_max_rate = 50000000\n"
)

// killOne sends SIGKILL to the only process of a kind.
func killOne(t *testing.T, d *harness.Daemon, kind string) {
	t.Helper()
	if err := d.KillOne(kind); err != nil {
		t.Fatal(err)
	}
}
