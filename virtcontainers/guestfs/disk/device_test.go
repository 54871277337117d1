package disk_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/internal/looptest"
	"github.com/katabox/katabox/virtcontainers/guestfs/disk"
)

// loopDevice returns a loop device of 1 MiB.
func loopDevice(t *testing.T, flags uint32) *os.File {
	t.Helper()
	return loopOver(t, file(t, "backing"), flags)
}

// loopOver is loopDevice over a given file.
func loopOver(t *testing.T, path string, flags uint32) *os.File {
	t.Helper()
	if err := os.Truncate(path, 1<<20); err != nil {
		t.Fatal(err)
	}
	return looptest.Over(t, path, flags)
}

// node makes another node of the same device.
func node(t *testing.T, dev *os.File) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(dev.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/node"
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(st.Rdev)); err != nil {
		t.Skip("needs to make a device node:", err)
	}
	return path
}

// holdAlone opens a device as mount(2) does.
func holdAlone(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
}

func TestBlockDevice(t *testing.T) {
	dev := loopDevice(t, 0)
	_, vm := machine(t)
	p := disk.NewPool(vm, disk.Options{Bus: hypervisor.VirtioSCSI})
	first, second := use(t, p, disk.Source{Path: dev.Name()}), use(t, p, disk.Source{Path: node(t, dev)})
	checkAttached(t, vm, "disk-1")
	release(t, p, first)
	release(t, p, second)
	checkAttached(t, vm)
}

func TestBlockDeviceInUse(t *testing.T) {
	for _, test := range []struct {
		name     string
		flags    uint32
		readOnly bool
		ok       bool
	}{
		{"to write", 0, false, false},
		{"to read what can be written", 0, true, false},
		{"to read a read-only device", unix.LO_FLAGS_READ_ONLY, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dev := loopDevice(t, test.flags)
			holdAlone(t, dev.Name())
			_, vm := machine(t)
			_, err := disk.NewPool(vm, disk.Options{Bus: hypervisor.VirtioSCSI}).Use(t.Context(), disk.Source{Path: dev.Name(), ReadOnly: test.readOnly})
			if test.ok {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), dev.Name()) || !strings.Contains(err.Error(), "in use") {
				t.Errorf("got %v", err)
			}
			checkAttached(t, vm)
		})
	}
}

// keeper is a machine that duplicates a disk's file, as a VMM does.
type keeper struct {
	*fake.VM
	fd int
}

func (k *keeper) Attach(ctx context.Context, d hypervisor.Device) (err error) {
	if k.fd, err = unix.FcntlInt(d.(hypervisor.Disk).File.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return err
	}
	return k.VM.Attach(ctx, d)
}

// A read-only disk leaves the device to others; for a writable one the VMM
// holds it exclusively.
func TestBlockDeviceIsHeldForWriting(t *testing.T) {
	for _, readOnly := range []bool{true, false} {
		dev := loopDevice(t, 0)
		_, vm := machine(t)
		m := &keeper{VM: vm}
		use(t, disk.NewPool(m, disk.Options{Bus: hypervisor.VirtioSCSI}), disk.Source{Path: dev.Name(), ReadOnly: readOnly})
		t.Cleanup(func() { _ = unix.Close(m.fd) })
		other, err := os.OpenFile(dev.Name(), os.O_RDONLY|unix.O_EXCL, 0)
		if err == nil {
			other.Close()
		}
		if errors.Is(err, unix.EBUSY) == readOnly {
			t.Errorf("read-only %v: another user: %v", readOnly, err)
		}
	}
}

// A file that the host has mounted cannot be a guest's disk, unless both only
// read.
func TestFileMountedByTheHost(t *testing.T) {
	for _, test := range []struct {
		name           string
		flags          uint32
		held, readOnly bool
		ok             bool
	}{
		{"mounted", 0, true, false, false},
		{"mounted, to read", 0, true, true, false},
		{"mounted read-only", unix.LO_FLAGS_READ_ONLY, true, false, false},
		{"mounted read-only, to read", unix.LO_FLAGS_READ_ONLY, true, true, true},
		{"only open", 0, false, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := file(t, "image")
			dev := loopOver(t, path, test.flags)
			if test.held {
				holdAlone(t, dev.Name())
			}
			_, vm := machine(t)
			p := disk.NewPool(vm, disk.Options{Bus: hypervisor.VirtioSCSI})
			_, err := p.Use(t.Context(), disk.Source{Path: path, ReadOnly: test.readOnly})
			if test.ok != (err == nil) || err != nil && (!errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), dev.Name())) {
				t.Errorf("got %v", err)
			}
			use(t, p, disk.Source{Path: file(t, "other")}) // another file is not affected
		})
	}
}

// A block device is as large as the host has made it.
func TestGrowDevice(t *testing.T) {
	backing := file(t, "backing")
	dev := loopOver(t, backing, 0)
	_, vm := machine(t)
	p := disk.NewPool(vm, disk.Options{Bus: hypervisor.VirtioBlk})
	d := use(t, p, disk.Source{Path: dev.Name()})
	if _, err := p.Grow(t.Context(), d, 1<<21); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "grow the device first") {
		t.Errorf("more than it has: %v", err)
	}
	looptest.Resize(t, dev, backing, 1<<21)
	for _, want := range []uint64{0, 1 << 20, 1<<20 + 1, 1 << 21} { // at least so much
		if got, err := p.Grow(t.Context(), d, want); err != nil || got != 1<<21 || vm.Grown("disk-1") != got {
			t.Errorf("want %d: %d bytes, %v", want, got, err)
		}
	}
	for _, smaller := range []int64{1 << 20, 0} {
		looptest.Resize(t, dev, backing, smaller)
		if _, err := p.Grow(t.Context(), d, 0); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "a disk does not shrink") || vm.Grown("disk-1") != 1<<21 {
			t.Errorf("a device that has shrunk to %d bytes: the machine was asked for %d, %v", smaller, vm.Grown("disk-1"), err)
		}
	}
	release(t, p, d)
}

// The guest sees the whole sectors of a device, however its growth is noticed.
func TestGrowDeviceInWholeSectors(t *testing.T) {
	backing := file(t, "backing")
	dev := loopOver(t, backing, 0)
	_, vm := machine(t)
	p := disk.NewPool(vm, disk.Options{Bus: hypervisor.VirtioBlk, LogicalBlockSize: 4096})
	d := use(t, p, disk.Source{Path: dev.Name()})
	looptest.Resize(t, dev, backing, 2<<20+512)
	p.Follow(t.Context(), d)
	if got := vm.Grown("disk-1"); got != 2<<20 {
		t.Errorf("followed: the machine was asked for %d bytes", got)
	}
	looptest.Resize(t, dev, backing, 3<<20+512)
	if got, err := p.Grow(t.Context(), d, 3<<20); err != nil || got != 3<<20 || vm.Grown("disk-1") != got {
		t.Errorf("grown: %d bytes, %v", got, err)
	}
	if _, err := p.Grow(t.Context(), d, 3<<20+1); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("more than its whole sectors: %v", err)
	}
	release(t, p, d)
}
