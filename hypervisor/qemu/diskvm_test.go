package qemu

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/internal/looptest"
)

// diskMiB is the size of test disks.
const diskMiB = 1

// testDisk is a disk whose first block has words that testguest reads.
func testDisk(t testing.TB, id string, b hypervisor.DiskBus) hypervisor.Disk {
	t.Helper()
	path := filepath.Join(t.TempDir(), id)
	if err := os.WriteFile(path, []byte("host: "+id), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, diskMiB<<20); err != nil {
		t.Fatal(err)
	}
	return hypervisor.Disk{ID: id, File: openDisk(t, path, os.O_RDWR), Bus: b, Serial: "s-" + id}
}

func openDisk(t testing.TB, path string, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// sawDisk returns what testguest prints about a disk.
func sawDisk(t testing.TB, vm *VM, d hypervisor.Disk) string {
	t.Helper()
	block := d.LogicalBlockSize
	if block == 0 {
		block = 512
	}
	ro := 0
	if d.ReadOnly {
		ro = 1
	}
	return fmt.Sprintf("testguest: add disk %s serial=%s size=%d block=%d ro=%d words=%q wrote=%v",
		where(t, vm, d.ID), d.Serial, diskMiB<<20/512, block, ro, "host: "+d.ID, !d.ReadOnly)
}

func where(t testing.TB, vm *VM, id string) string {
	t.Helper()
	l, err := vm.Locate(id)
	if err != nil {
		t.Fatal(err)
	}
	if l.LUN == nil {
		return string(l.PCIPath)
	}
	return fmt.Sprintf("%s %s", l.PCIPath, l.LUN)
}

// guestWrote checks what the guest has written.
func guestWrote(t testing.TB, d hypervisor.Disk) {
	t.Helper()
	block := make([]byte, 64)
	f := openDisk(t, d.File.Name(), os.O_RDONLY)
	if _, err := f.ReadAt(block, 4096); err != nil {
		t.Fatal(err)
	}
	want := "guest: host: " + d.ID
	if d.ReadOnly {
		want = ""
	}
	if got := string(bytes.TrimRight(block, "\x00")); got != want {
		t.Errorf("disk %s has %q, want %q", d.ID, got, want)
	}
}

func attachDisk(t testing.TB, vm *VM, d hypervisor.Disk) {
	t.Helper()
	if err := vm.Attach(testContext(t), d); err != nil {
		t.Fatal(err)
	}
}

// noDisks checks that QEMU holds no block node and no descriptor.
func noDisks(t testing.TB, vm *VM) {
	t.Helper()
	for _, query := range []string{"query-named-block-nodes", "query-fdsets"} {
		var all []any
		if err := vm.mon.Execute(testContext(t), query, nil, &all); err != nil || len(all) != 0 {
			t.Errorf("%s: %v, %v", query, all, err)
		}
	}
}

// diskGuest returns a machine with testguest, whose image has the drivers of a
// bus.
func diskGuest(t testing.TB, b hypervisor.DiskBus) *VM {
	t.Helper()
	spec := guestSpec(t)
	if driver := strings.ReplaceAll(string(b), "-", "_"); !guestHas(t, driver) {
		t.Skipf("the guest image has no module %s", driver)
	}
	return launch(t, spec)
}

// Disks of both buses are attached at boot and later, read and written, and
// detached.
func TestDiskInGuest(t *testing.T) {
	for _, b := range []hypervisor.DiskBus{hypervisor.VirtioBlk, hypervisor.VirtioSCSI} {
		t.Run(string(b), func(t *testing.T) {
			vm := diskGuest(t, b)
			boot := testDisk(t, "boot", b)
			start := time.Now()
			attachDisk(t, vm, boot)
			t.Logf("attached to a paused machine in %v", time.Since(start))
			start = time.Now()
			if err := vm.Resume(testContext(t)); err != nil {
				t.Fatal(err)
			}
			awaitConsole(t, vm, sawDisk(t, vm, boot), ready)
			t.Logf("guest up after %v", time.Since(start))
			for _, d := range []hypervisor.Disk{
				testDisk(t, "plain", b), readOnly(t, testDisk(t, "readonly", b)), odd(testDisk(t, "odd", b)),
			} {
				start := time.Now()
				attachDisk(t, vm, d)
				accepted := time.Since(start)
				awaitConsole(t, vm, sawDisk(t, vm, d))
				t.Logf("%s: accepted after %v, used by the guest after %v", d.ID, accepted, time.Since(start))
				gone := "testguest: remove disk " + where(t, vm, d.ID)
				start = time.Now()
				unplug(t, vm, d.ID)
				t.Logf("%s: detached after %v", d.ID, time.Since(start))
				awaitConsole(t, vm, gone)
				guestWrote(t, d)
			}
			unplug(t, vm, "boot")
			guestWrote(t, boot)
			noDisks(t, vm)
		})
	}
}

func readOnly(t testing.TB, d hypervisor.Disk) hypervisor.Disk {
	d.ReadOnly, d.File = true, openDisk(t, d.File.Name(), os.O_RDONLY)
	return d
}

// odd has everything that is not the default.
func odd(d hypervisor.Disk) hypervisor.Disk {
	d.LogicalBlockSize = 4096 // and so is the physical one
	d.Cache = hypervisor.DiskCache{Direct: true, NoFlush: true}
	d.AIO = hypervisor.AIONative
	return d
}

// As many disks as a pod may have, besides its other devices.
const manyDisks = 30

// Thirty disks are attached concurrently to a running guest, together with
// their controller, and detached.
func TestThirtyDisks(t *testing.T) {
	vm := diskGuest(t, hypervisor.VirtioSCSI)
	// With qboot a bridge without devices gets no windows.
	boot := testDisk(t, "boot", hypervisor.VirtioBlk)
	attachDisk(t, vm, boot)
	if err := vm.Resume(testContext(t)); err != nil {
		t.Fatal(err)
	}
	awaitConsole(t, vm, ready)
	var disks []hypervisor.Disk
	for i := range manyDisks {
		disks = append(disks, testDisk(t, fmt.Sprintf("d%d", i), hypervisor.VirtioSCSI))
	}
	start := time.Now()
	each(disks, func(d hypervisor.Disk) {
		if err := vm.Attach(testContext(t), d); err != nil {
			t.Error(err)
		}
	})
	accepted := time.Since(start)
	for _, d := range disks {
		awaitConsole(t, vm, sawDisk(t, vm, d))
	}
	t.Logf("%d disks: accepted after %v, used by the guest after %v", len(disks), accepted, time.Since(start))
	start = time.Now()
	each(disks, func(d hypervisor.Disk) {
		if err := vm.Detach(testContext(t), d.ID); err != nil {
			t.Error(err)
		}
	})
	t.Logf("detached after %v", time.Since(start))
	for _, d := range disks {
		guestWrote(t, d)
	}
	unplug(t, vm, boot.ID)
	noDisks(t, vm)
}

// each calls f for all of the disks concurrently.
func each(disks []hypervisor.Disk, f func(hypervisor.Disk)) {
	var all sync.WaitGroup
	for _, d := range disks {
		all.Go(func() { f(d) })
	}
	all.Wait()
}

// Disks that are attached and detached concurrently, again and again, leave
// nothing.
func TestDiskChurn(t *testing.T) {
	const disks, rounds = 4, 10
	for _, b := range []hypervisor.DiskBus{hypervisor.VirtioBlk, hypervisor.VirtioSCSI} {
		t.Run(string(b), func(t *testing.T) {
			vm := diskGuest(t, b)
			attachDisk(t, vm, testDisk(t, "boot", b))
			up(t, vm)
			var all []hypervisor.Disk
			for i := range disks {
				all = append(all, testDisk(t, fmt.Sprintf("d%d", i), b))
			}
			start := time.Now()
			each(all, func(d hypervisor.Disk) {
				for range rounds {
					if err := errors.Join(vm.Attach(testContext(t), d), vm.Detach(testContext(t), d.ID)); err != nil {
						t.Error(err)
						return
					}
				}
			})
			t.Logf("%d times in and out: %v", disks*rounds, time.Since(start))
			attachDisk(t, vm, all[0])
			awaitConsole(t, vm, sawDisk(t, vm, all[0]))
			unplug(t, vm, all[0].ID)
			unplug(t, vm, "boot")
			noDisks(t, vm)
		})
	}
}

// A disk backed by a block device of the host.
func TestBlockDeviceDisk(t *testing.T) {
	d := testDisk(t, "x", hypervisor.VirtioBlk)
	d.File = looptest.Over(t, d.File.Name(), 0)
	vm := launch(t, testSpec(t, testKernel(t, "", idle)))
	attachDisk(t, vm, d)
	var nodes []struct {
		Drv   string
		Image struct {
			Size int64 `json:"virtual-size"`
		}
	}
	if err := vm.mon.Execute(testContext(t), "query-named-block-nodes", nil, &nodes); err != nil {
		t.Fatal(err)
	}
	if len(nodes) != 2 || nodes[0].Drv != "raw" || nodes[0].Image.Size != diskMiB<<20 || nodes[1].Drv != "host_device" {
		t.Errorf("block nodes: %+v", nodes)
	}
}

// QEMU takes a block device past the page cache, to read and to write, and reads it.
func TestDirectBlockDevice(t *testing.T) {
	for _, aio := range []hypervisor.DiskAIO{hypervisor.AIOThreads, hypervisor.AIONative} {
		for _, reads := range []bool{false, true} {
			d := testDisk(t, "x", hypervisor.VirtioSCSI)
			d.File = looptest.Over(t, d.File.Name(), 0)
			if reads {
				d = readOnly(t, d)
			}
			d.AIO, d.Cache.Direct = aio, true
			vm := launch(t, testSpec(t, testKernel(t, "", idle)))
			attachDisk(t, vm, d)
			var nodes []struct {
				Cache struct{ Direct bool }
			}
			if err := vm.mon.Execute(testContext(t), "query-named-block-nodes", nil, &nodes); err != nil {
				t.Fatal(err)
			}
			if len(nodes) != 2 || !nodes[0].Cache.Direct || !nodes[1].Cache.Direct {
				t.Errorf("%s, read-only %v: block nodes %+v", aio, reads, nodes)
			}
			if n := readByQEMU(t, vm, d.ID); n != 512 {
				t.Errorf("%s, read-only %v: QEMU has read %d bytes of 512", aio, reads, n)
			}
		}
	}
}

// readByQEMU has QEMU read 512 bytes of a disk, and returns how many it has read.
func readByQEMU(t testing.TB, vm *VM, id string) (total int) {
	t.Helper()
	for _, step := range []string{"aio_read 512 512", "aio_flush"} {
		line := map[string]any{"command-line": `qemu-io -d ` + id + ` "` + step + `"`}
		if err := vm.mon.Execute(testContext(t), "human-monitor-command", line, new(string)); err != nil {
			t.Fatal(err)
		}
	}
	var all []struct {
		Stats struct {
			Read int `json:"rd_bytes"`
		}
	}
	if err := vm.mon.Execute(testContext(t), "query-blockstats", nil, &all); err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		total += one.Stats.Read
	}
	return total
}
