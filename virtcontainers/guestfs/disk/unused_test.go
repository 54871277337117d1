package disk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers/guestfs/disk"
)

// slow is a machine that attaches disks and does not confirm it in time. As long as it
// is stuck, it detaches none.
type slow struct {
	*fake.VM
	silent, stuck atomic.Bool
	tries         atomic.Int64
}

func (s *slow) Attach(ctx context.Context, d hypervisor.Device) error {
	s.tries.Add(1)
	err := s.VM.Attach(ctx, d)
	if err == nil && s.silent.Load() {
		err = fmt.Errorf("no reply: %w", context.DeadlineExceeded)
	}
	return err
}

func (s *slow) Detach(ctx context.Context, id string) error {
	if s.stuck.Load() {
		return fmt.Errorf("no reply: %w", context.DeadlineExceeded)
	}
	return s.VM.Detach(ctx, id)
}

// slowPool returns a pool of disks of a slow machine, and what Use fails with.
func slowPool(t *testing.T, stuck bool) (p *disk.Pool, m *slow, src disk.Source) {
	t.Helper()
	_, vm := machine(t)
	m = &slow{VM: vm}
	m.silent.Store(true)
	m.stuck.Store(stuck)
	p = disk.NewPool(m, disk.Options{Bus: hypervisor.VirtioSCSI, AIO: hypervisor.AIOUring})
	src = disk.Source{Path: file(t, "a")}
	if _, err := p.Use(t.Context(), src); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Use: %v", err)
	}
	if n := m.tries.Load(); n != 1 {
		t.Errorf("%d disks were tried: the machine has not refused the first", n)
	}
	m.silent.Store(false)
	return p, m, src
}

func checkAIO(t *testing.T, vm *fake.VM) {
	t.Helper()
	if got := vm.Devices()[0].(hypervisor.Disk).AIO; got != hypervisor.AIOUring {
		t.Errorf("AIO is %s: the machine has not refused io_uring", got)
	}
}

// A disk that the machine has not confirmed in time is taken out, whenever the machine
// answers again.
func TestUnconfirmedDisk(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		p, m, src := slowPool(t, stuck)
		if got := p.HasUnused(); got != stuck {
			t.Errorf("stuck %t: a disk without a user: %t", stuck, got)
		}
		if stuck {
			if _, err := p.Use(t.Context(), src); err == nil || !strings.Contains(err.Error(), "an earlier attach or detach of this disk is not finished") {
				t.Errorf("Use while the machine does not answer: %v", err)
			}
			checkAttached(t, m.VM, "disk-1")
		}
		m.stuck.Store(false)
		use(t, p, src)
		checkAttached(t, m.VM, "disk-2")
		checkAIO(t, m.VM)
		checkClosed(t, src.Path)
	}
}

// The same if no container asks for it again.
func TestUnconfirmedDiskIsDetachedLater(t *testing.T) {
	p, m, src := slowPool(t, true)
	select {
	case <-p.Unused():
	default:
		t.Error("an unused disk is not announced")
	}
	p.DetachUnused(t.Context())
	if !p.HasUnused() || p.Len() != 1 {
		t.Error("an unused disk is forgotten")
	}
	checkAttached(t, m.VM, "disk-1")
	m.stuck.Store(false)
	p.DetachUnused(t.Context())
	if p.HasUnused() || p.Len() != 0 {
		t.Error("a detached disk is remembered")
	}
	checkAttached(t, m.VM)
	checkClosed(t, src.Path)
}

// A disk whose detaching failed is detached later, and its handle is of no use then.
func TestUnusedDiskIsDetachedLater(t *testing.T) {
	m, vm := machine(t)
	p := disk.NewPool(vm, disk.Options{Bus: hypervisor.VirtioBlk})
	used, unused := use(t, p, disk.Source{Path: file(t, "a")}), use(t, p, disk.Source{Path: file(t, "b")})
	m.Fail(fake.StepDetach, errInjected)
	if err := p.Release(t.Context(), unused); !errors.Is(err, errInjected) {
		t.Errorf("Release: %v", err)
	}
	m.Fail(fake.StepDetach, nil)
	p.DetachUnused(t.Context())
	checkAttached(t, vm, "disk-1")
	release(t, p, unused)
	release(t, p, used)
	checkAttached(t, vm)
}
