package qemu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
)

// When the host's file system is full, the guest's write fails, and the machine runs on.
func TestDiskOnAFullFileSystem(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("to mount a small file system needs root")
	}
	for _, b := range []hypervisor.DiskBus{hypervisor.VirtioBlk, hypervisor.VirtioSCSI} {
		t.Run(string(b), func(t *testing.T) {
			vm := diskGuest(t, b)
			well := testDisk(t, "well", b)
			attachDisk(t, vm, well)
			if err := vm.Resume(testContext(t)); err != nil {
				t.Fatal(err)
			}
			awaitConsole(t, vm, sawDisk(t, vm, well), ready)
			d := fullDisk(t, b)
			attachDisk(t, vm, d)
			awaitConsole(t, vm, strings.Replace(sawDisk(t, vm, d), "wrote=true", "wrote=false", 1))
			unplug(t, vm, d.ID)
			unplug(t, vm, well.ID)
			guestWrote(t, well)
		})
	}
}

// fullDisk is a test disk in a file system without room for what the guest writes.
func fullDisk(t *testing.T, b hypervisor.DiskBus) hypervisor.Disk {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("katabox-full", dir, "tmpfs", 0, "size=8k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	disk := filepath.Join(dir, "full")
	for path, text := range map[string]string{disk: "host: full", filepath.Join(dir, "other"): "x"} { // a page each
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(disk, diskMiB<<20); err != nil {
		t.Fatal(err)
	}
	return hypervisor.Disk{ID: "full", File: openDisk(t, disk, os.O_RDWR), Bus: b, Serial: "s-full"}
}
