package sizing

import (
	"testing"

	"github.com/katabox/katabox/virtcontainers/config"
)

// A machine whose guest takes memory only in large blocks is not asked for more than
// there can be in whole ones.
func TestWantedInLargeBlocks(t *testing.T) {
	for _, test := range []struct {
		virtio     bool
		boot, want uint64
	}{{false, 64 << 10, 68 << 10}, {true, 64 << 10, 69 << 10}, {false, 4 << 10, 69 << 10}} {
		c := new(config.Config)
		c.Hypervisor.VCPUs, c.Hypervisor.MaxVCPUs, c.Hypervisor.MemoryMiB, c.Hypervisor.MaxMemoryMiB = 1, 4, test.boot, 69<<10
		c.Hypervisor.VirtioMem = test.virtio
		p, err := New(t.Context(), Options{SandboxID: "pod", Config: c})
		if err != nil {
			t.Fatal(err)
		}
		allowed, err := p.allowanceOf(container("c1", 80<<30), container("c1", 80<<30).Spec.Linux.Resources)
		if err != nil {
			t.Fatal(err)
		}
		p.set("c1", allowed)
		if got := p.wanted(); got.MemoryMiB != test.want || len(got.Notes) == 0 {
			t.Errorf("from %d MiB, virtio-mem %v: %d MiB, notes %q, want %d MiB and a note", test.boot, test.virtio, got.MemoryMiB, got.Notes, test.want)
		}
	}
}
