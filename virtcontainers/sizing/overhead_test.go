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

// sharing is a machine that maps its template's memory privately.
type sharing struct{ hypervisor.VM }

type owner struct{ hypervisor.MemoryOwner }

func (sharing) MemoryOwner() hypervisor.MemoryOwner { return owner{} }

// A machine that maps its template's memory privately may be charged twice for each page
// of it: for its own and for the one of zeros that the kernel adds to the template's.
func TestTemplatesMemoryCountsTwice(t *testing.T) {
	const limit = 2*2048 + vmOverheadMiB
	cgroup := limitedCgroup(t, limit)
	p, _ := chargedPod(t, cgroup)
	if err := p.Account(t.Context(), sharing{p.vm}, 0); err != nil {
		t.Fatal(err)
	}
	if want := uint64(2*2048 + 2048/64 + vmOverheadMiB + helpersMiB); p.bounded>>20 != want {
		t.Errorf("the bound is %d MiB, want %d", p.bounded>>20, want)
	}
	for _, test := range []struct {
		mib    int
		inside bool
	}{{limit, true}, {limit - 1, false}} {
		setLimit(t, cgroup, test.mib)
		if err := p.newLookout().follow(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p.chargedToPod(t, cgroup) != test.inside {
			t.Errorf("with a limit of %d MiB the machine is charged to the pod: %v, want %v", test.mib, !test.inside, test.inside)
		}
	}
	// What is plugged is its own.
	if got := p.hostRoomMiB(t.Context(), 1); got != limit-1-2048-vmOverheadMiB {
		t.Errorf("the machine may grow to %d MiB", got)
	}
}
