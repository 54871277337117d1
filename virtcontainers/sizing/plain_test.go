package sizing

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

func TestStartPlain(t *testing.T) {
	plain := config.Hypervisor{VCPUs: 1, MaxVCPUs: 8, MemoryMiB: 256, MaxMemoryMiB: 1 << 20, MemorySlots: 10}
	for name, tt := range map[string]struct {
		change func(*config.Config)
		want   bool
	}{
		"the same":         {func(*config.Config) {}, false},
		"more vCPUs":       {func(c *config.Config) { c.Hypervisor.VCPUs = 8 }, true},
		"a part of a vCPU": {func(c *config.Config) { c.Hypervisor.VCPUs, c.Hypervisor.DefaultVCPUs = 2, 1.5 }, true},
		"more memory":      {func(c *config.Config) { c.Hypervisor.MemoryMiB = 1024 }, true},
		"as virtio-mem": {func(c *config.Config) {
			c.Hypervisor.MemoryMiB, c.Hypervisor.MemorySlots, c.Hypervisor.VirtioMem = 1024, 0, true
		}, true},
		"more of both":           {func(c *config.Config) { c.Hypervisor.VCPUs, c.Hypervisor.MemoryMiB = 2, 384 }, true},
		"much more memory":       {func(c *config.Config) { c.Hypervisor.MemoryMiB = 1 << 20 }, true},
		"no whole blocks":        {func(c *config.Config) { c.Hypervisor.MemoryMiB = 300 }, false},
		"no whole large blocks":  {func(c *config.Config) { c.Plain.Hypervisor.MemoryMiB, c.Hypervisor.MemoryMiB = 64<<10, 65<<10 }, false},
		"no slots":               {func(c *config.Config) { c.Hypervisor.MemoryMiB, c.Hypervisor.MemorySlots = 1024, 0 }, false},
		"above its maximum":      {func(c *config.Config) { c.Hypervisor.MemoryMiB, c.Hypervisor.MaxMemoryMiB = 1024, 512 }, false},
		"fewer vCPUs":            {func(c *config.Config) { c.Plain.Hypervisor.VCPUs = 2 }, false},
		"less memory, more CPUs": {func(c *config.Config) { c.Plain.Hypervisor.MemoryMiB, c.Hypervisor.VCPUs = 512, 2 }, false},
		"static":                 {func(c *config.Config) { c.Hypervisor.VCPUs, c.Runtime.StaticSizing = 2, true }, false},
		"no annotations":         {func(c *config.Config) { c.Hypervisor.VCPUs, c.Plain = 2, nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := &config.Config{Hypervisor: plain, Plain: &config.Config{Hypervisor: plain}}
			tt.change(c)
			p, err := New(t.Context(), Options{SandboxID: "pod", Config: c})
			if err != nil {
				t.Fatal(err)
			}
			own := p.Initial()
			undo, ok := p.StartPlain()
			if ok != tt.want {
				t.Fatalf("from 1 vCPU and 256 MiB to %+v: %t, want %t", own, ok, tt.want)
			}
			if !ok {
				return
			}
			if size := p.Initial(); size.VCPUs != 1 || size.MemoryMiB != 256 {
				t.Errorf("it starts with %+v", size)
			}
			if want := p.wanted(); want.VCPUs != own.VCPUs || want.MemoryMiB != own.MemoryMiB || p.vcpus != 1 || p.memoryMiB != 256 {
				t.Errorf("it has %d vCPUs and %d MiB and grows to %+v, want %+v", p.vcpus, p.memoryMiB, want, own)
			}
			undo()
			if size := p.Initial(); size.VCPUs != own.VCPUs || size.MemoryMiB != own.MemoryMiB {
				t.Errorf("undone, it starts with %+v, want %+v", size, own)
			}
		})
	}
}

// A machine that continues from a saved one can become as large as that could, and
// does not become larger than this host and configuration allow.
func TestContinuesWithMost(t *testing.T) {
	c := new(config.Config)
	c.Hypervisor.VCPUs, c.Hypervisor.MaxVCPUs, c.Hypervisor.MemoryMiB, c.Hypervisor.MaxMemoryMiB = 1, 4, 256, 1024
	memory, quota, period := int64(8<<30), int64(1_600_000), uint64(100_000)
	need, err := resource.OfContainer(&specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: &memory}, CPU: &specs.LinuxCPU{Quota: &quota, Period: &period},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ saved, want Most }{
		{Most{VCPUs: 8, MemoryMiB: 512}, Most{VCPUs: 4, MemoryMiB: 512}},
		{Most{VCPUs: 2, MemoryMiB: 4096}, Most{VCPUs: 2, MemoryMiB: 1024}},
	} {
		p, err := New(t.Context(), Options{SandboxID: "pod", Config: c, Most: &test.saved})
		if err != nil {
			t.Fatal(err)
		}
		var spec hypervisor.Spec
		p.Set(&spec)
		if got := (Most{spec.MaxVCPUs, spec.MaxMemoryMiB}); got != test.saved {
			t.Errorf("the machine can become %v, want %v", got, test.saved)
		}
		if got := p.machine.Size(need); (Most{got.VCPUs, got.MemoryMiB}) != test.want {
			t.Errorf("it becomes %d vCPUs and %d MiB, want %v", got.VCPUs, got.MemoryMiB, test.want)
		}
	}
}
