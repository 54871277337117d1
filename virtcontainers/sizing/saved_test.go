package sizing

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/config"
)

// A pod that continues from a saved machine has that one's size, if this host and its
// configuration allow it.
func TestContinue(t *testing.T) {
	for name, test := range map[string]struct {
		saved   hypervisor.Layout
		most    *Most
		want    Most   // its size
		refused string // or why it is refused
	}{
		"as at its start":    {hypervisor.Layout{VCPUs: 1}, &Most{4, 1024}, Most{1, 256}, ""},
		"grown":              {hypervisor.Layout{VCPUs: 3, ModulesMiB: []uint64{128, 256}}, &Most{4, 1024}, Most{3, 640}, ""},
		"grown to the most":  {hypervisor.Layout{VCPUs: 4, ModulesMiB: []uint64{768}}, &Most{8, 4096}, Most{4, 1024}, ""},
		"not known to grow":  {hypervisor.Layout{VCPUs: 4}, nil, Most{4, 256}, ""},
		"more vCPUs":         {hypervisor.Layout{VCPUs: 5}, &Most{8, 1024}, Most{}, "has 5 vCPUs, this host and its configuration allow 4 (default_maxvcpus)"},
		"more than its most": {hypervisor.Layout{VCPUs: 3}, &Most{2, 1024}, Most{}, "has 3 vCPUs, this host and its configuration allow 2"},
		"more, not known":    {hypervisor.Layout{VCPUs: 5}, nil, Most{}, "allow 4 (default_maxvcpus)"},
		"absurdly many":      {hypervisor.Layout{VCPUs: 1<<32 - 1}, &Most{1<<32 - 1, 1024}, Most{}, "allow 4 (default_maxvcpus)"},
		"more memory":        {hypervisor.Layout{VCPUs: 1, ModulesMiB: []uint64{768, 1}}, &Most{4, 4096}, Most{}, "memory modules of [768 1] MiB, this host and its configuration allow 1024 MiB (default_maxmemory)"},
		"memory overflows":   {hypervisor.Layout{VCPUs: 1, ModulesMiB: []uint64{1<<64 - 256}}, &Most{4, 4096}, Most{}, "default_maxmemory"},
	} {
		t.Run(name, func(t *testing.T) {
			p := continuing(t, test.most, false)
			err := p.Continue(test.saved)
			if test.refused != "" {
				if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), test.refused) {
					t.Errorf("got %v, want %q", err, test.refused)
				}
				return
			}
			if got := (Most{p.vcpus, p.memoryMiB}); err != nil || got != test.want {
				t.Errorf("it has %+v, %v, want %+v", got, err, test.want)
			}
		})
	}
}

func continuing(t *testing.T, most *Most, virtioMem bool) *Pod {
	t.Helper()
	c := new(config.Config)
	c.Hypervisor.VCPUs, c.Hypervisor.MaxVCPUs, c.Hypervisor.MemoryMiB, c.Hypervisor.MaxMemoryMiB = 1, 4, 256, 1024
	c.Hypervisor.VirtioMem = virtioMem
	p, err := New(t.Context(), Options{SandboxID: "pod", Config: c, Most: most})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What a checkpoint's record says does not raise the bounds on the host.
func TestForgedMost(t *testing.T) {
	for _, virtioMem := range []bool{false, true} {
		p := continuing(t, &Most{VCPUs: 288, MemoryMiB: 16 << 20}, virtioMem)
		if got := p.MostMiB(); got != 1024 {
			t.Errorf("virtio-mem %v: it may have %d MiB, want 1024", virtioMem, got)
		}
		if got := p.tablesMiB(1024); got != 1024/64 {
			t.Errorf("virtio-mem %v: room of %d MiB for tables, want %d", virtioMem, got, 1024/64)
		}
	}
}
