package sizing

import (
	"testing"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/config"
)

func TestOverheadFollowsTheTranslationBuffer(t *testing.T) {
	for _, test := range []struct {
		accel       hypervisor.Accel
		translation uint64
		want        uint64
	}{
		{hypervisor.AccelKVM, 0, 256},
		{hypervisor.AccelKVM, 512, 256},
		{hypervisor.AccelTCG, 32, 416},
		{hypervisor.AccelTCG, 512, 896},
		{hypervisor.AccelTCG, 0, 1280},
	} {
		c := new(config.Config)
		c.Hypervisor.TranslationMiB = test.translation
		p := &Pod{opts: Options{Config: c, Accel: test.accel}}
		if got := p.overheadMiB(); got != test.want {
			t.Errorf("%s with a buffer of %d MiB: %d MiB, want %d", test.accel, test.translation, got, test.want)
		}
	}
}

// The bound leaves room for the page tables of a large guest.
func TestBoundLeavesRoomForTables(t *testing.T) {
	for _, test := range []struct {
		virtio bool
		want   uint64
	}{{false, 4096}, {true, 16384}} {
		c := new(config.Config)
		c.Hypervisor.VirtioMem = test.virtio
		p := &Pod{opts: Options{Config: c}}
		p.most.MemoryMiB = 1 << 20
		if got := p.tablesMiB(256 << 10); got != test.want {
			t.Errorf("virtio-mem %v: %d MiB, want %d", test.virtio, got, test.want)
		}
	}
}
