package network

import (
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/katabox/katabox/tests/harness"
)

// A pod whose annotations want more vCPUs and memory than a template has starts from
// it all the same, and has what it has when it boots: also the queues of its NICs.
func TestLargerPodFromTemplate(t *testing.T) {
	needVM(t)
	const (
		hypervisor = "io.katacontainers.config.hypervisor."
		allowed    = "[hypervisor.qemu]\nenable_annotations = [\"default_.*\"]\n"
	)
	seen := make(map[string]string)
	for name, arrange := range map[string]func(*testing.T, *harness.Daemon){
		"template": func(t *testing.T, d *harness.Daemon) { t.Helper(); useTemplate(t, d, allowed) },
		"virtio-mem": func(t *testing.T, d *harness.Daemon) {
			t.Helper()
			useTemplate(t, d, allowed+"enable_virtio_mem = true\n")
		},
		"boot": func(t *testing.T, d *harness.Daemon) {
			t.Helper()
			configure(t, d, allowed+"[factory]\nenable_template = false\nvm_cache_number = 0\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, d := begin(t)
			arrange(t, d)
			bridge := newBridge(t, d, 0)
			ns := newNetns(t, d)
			l := bridge.join(t, ns, "eth0")
			mark := d.LogSize()
			p := newPod(ctx, t, d, ns, oci.WithAnnotations(map[string]string{hypervisor + "default_vcpus": "2", hypervisor + "default_memory": "1024"}))
			if booted := strings.Contains(d.LogSince(mark, 100000), "template= "); booted != (name == "boot") {
				t.Errorf("it booted: %t", booted)
			}
			netns("").checks(t, targets(1500, l.addrs()...)...)
			netns("").serve(ctx, t, servers...)
			p.checks(ctx, t, targets(1500, bridge.gateways()...)...)
			out, err := p.run(ctx, "sh", "-c", `nproc; ls /sys/class/net/eth0/queues; awk '/MemTotal/ { print int($2 / 1024 / 128) }' /proc/meminfo`)
			if err != nil {
				t.Fatal(err)
			}
			seen[name] = out
		})
	}
	for _, way := range []string{"template", "virtio-mem"} {
		if seen[way] != seen["boot"] || !strings.Contains(seen["boot"], "rx-1") {
			t.Errorf("%s: from the template it has\n%s\nbooted\n%s", way, seen[way], seen["boot"])
		}
	}
}
