package disk_test

import (
	"os"
	"strings"
	"testing"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/internal/looptest"
	"github.com/katabox/katabox/virtcontainers/guestfs/disk"
)

// A disk grows with its device. What it cannot follow is in the log once.
func TestFollowDevice(t *testing.T) {
	ctx, out := logged(t)
	backing := file(t, "backing")
	dev := loopOver(t, backing, 0)
	m, vm := machine(t)
	p := disk.NewPool(vm, disk.Options{Bus: hypervisor.VirtioBlk})
	first, second := use(t, p, disk.Source{Path: dev.Name()}), use(t, p, disk.Source{Path: dev.Name()})
	for _, step := range []struct {
		name   string
		length int64
		fail   error
		grown  uint64
		logs   string // empty for none
	}{
		{name: "as it was", length: 1 << 20},
		{name: "larger, and the machine fails", length: 2 << 20, fail: errInjected, logs: "the guest does not see it"},
		{name: "larger", length: 2 << 20, grown: 2 << 20, logs: "has grown"},
		{name: "smaller", length: 1 << 20, grown: 2 << 20, logs: "has become smaller"},
		{name: "as before", length: 2 << 20, grown: 2 << 20},
		{name: "smaller again", length: 1 << 20, grown: 2 << 20, logs: "has become smaller"},
		{name: "much larger", length: 4 << 20, grown: 4 << 20, logs: "has grown"},
	} {
		looptest.Resize(t, dev, backing, step.length)
		m.Fail(fake.StepGrow, step.fail)
		out.Reset()
		for range 2 {
			p.Follow(ctx, first)
			p.Follow(ctx, second)
		}
		if got := vm.Grown("disk-1"); got != step.grown {
			t.Errorf("%s: the machine was asked for %d bytes, want %d", step.name, got, step.grown)
		}
		lines := strings.Count(out.String(), "level=")
		if step.logs == "" && lines != 0 || step.logs != "" && (lines != 1 || !strings.Contains(out.String(), step.logs) || !strings.Contains(out.String(), dev.Name())) {
			t.Errorf("%s: log:\n%s\nwant one line with %q", step.name, out, step.logs)
		}
	}
	release(t, p, first)
	release(t, p, second)
	looptest.Resize(t, dev, backing, 8<<20)
	for _, d := range []*disk.Disk{first, second, nil} {
		p.Follow(ctx, d) // released
	}
	if p.Len() != 0 {
		t.Errorf("%d disks are remembered", p.Len())
	}
}

// A device that the guest only reads stays as it is, and a file is not looked at.
func TestFollowWhatDoesNotGrow(t *testing.T) {
	ctx, out := logged(t)
	backing, image := file(t, "backing"), file(t, "image")
	dev := loopOver(t, backing, 0)
	_, vm := machine(t)
	p := disk.NewPool(vm, disk.Options{Bus: hypervisor.VirtioBlk})
	device, plain := use(t, p, disk.Source{Path: dev.Name(), ReadOnly: true}), use(t, p, disk.Source{Path: image})
	looptest.Resize(t, dev, backing, 2<<20)
	if err := os.Truncate(image, 1<<20); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p.Follow(ctx, device)
		p.Follow(ctx, plain)
	}
	if vm.Grown("disk-1") != 0 || vm.Grown("disk-2") != 0 {
		t.Errorf("grown to %d and %d bytes", vm.Grown("disk-1"), vm.Grown("disk-2"))
	}
	if log := out.String(); strings.Count(log, "level=") != 1 || !strings.Contains(log, "it is read-only") {
		t.Errorf("log:\n%s", log)
	}
}
