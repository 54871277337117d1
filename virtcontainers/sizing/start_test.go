package sizing

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/config"
)

// A machine without a pod starts like that of a pod of which the engine says nothing:
// otherwise no template and no spare would fit one.
func TestStartWithoutPod(t *testing.T) {
	for name, change := range map[string]func(*config.Config){
		"default":      func(*config.Config) {},
		"static":       func(c *config.Config) { c.Runtime.StaticSizing = true },
		"virtio-mem":   func(c *config.Config) { c.Hypervisor.VirtioMem = true },
		"part of CPUs": func(c *config.Config) { c.Hypervisor.DefaultVCPUs = 1.5 },
		"all memory":   func(c *config.Config) { c.Hypervisor.MaxMemoryMiB = 0 },
		"too large":    func(c *config.Config) { c.Hypervisor.VCPUs = 16 },
	} {
		t.Run(name, func(t *testing.T) {
			c := new(config.Config)
			c.Hypervisor.VCPUs, c.Hypervisor.MaxVCPUs = 2, 8
			c.Hypervisor.MemoryMiB, c.Hypervisor.MaxMemoryMiB, c.Hypervisor.MemorySlots = 512, 4096, 10
			change(c)
			alone, err := NewStart(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			pod, err := New(t.Context(), Options{Config: c})
			if err != nil {
				t.Fatal(err)
			}
			var got, want hypervisor.Spec
			alone.Set(&got)
			pod.Set(&want)
			if diff := cmp.Diff(want, got); diff != "" || got.VCPUs == 0 || got.MemoryMiB != 512 {
				t.Errorf("%d vCPUs, %d MiB; the machine (-of a pod +without): %s", got.VCPUs, got.MemoryMiB, diff)
			}
		})
	}
}
