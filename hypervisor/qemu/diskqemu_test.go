package qemu

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/katabox/katabox/hypervisor"
)

// A disk that a real QEMU refuses leaves nothing; in a paused machine, once it
// runs.
func TestRefusedDiskIsUndone(t *testing.T) {
	for _, b := range []hypervisor.DiskBus{hypervisor.VirtioBlk, hypervisor.VirtioSCSI} {
		for _, running := range []bool{false, true} {
			vm := launch(t, testSpec(t, testKernel(t, "", idle)))
			if running {
				if err := vm.Resume(testContext(t)); err != nil {
					t.Fatal(err)
				}
			}
			for name, change := range map[string]func(*plan){
				"no such driver": func(p *plan) { p.backend.add.args["driver"] = "warp" },
				"no such set":    func(p *plan) { p.backend.add.args["file"].(map[string]any)["filename"] = "/dev/fdset/99" },
				"no such device": func(p *plan) { p.device["driver"] = "warp" },
				"no such node":   func(p *plan) { p.device["drive"] = "warp" },
				"no such block":  func(p *plan) { p.device["logical_block_size"] = 1 << 30 },
			} {
				p, err := planOf(testDisk(t, "x", b), vm.newSet())
				if err != nil {
					t.Fatal(err)
				}
				change(&p)
				if err := vm.needController(testContext(t)); err != nil {
					t.Fatal(err)
				}
				p.bus.put(p.device, 5)
				if err := vm.plug(testContext(t), p); !refused(err) {
					t.Errorf("%s, %s: %v", b, name, err)
				}
			}
			d := testDisk(t, "x", b)
			attachDisk(t, vm, d)
			if !running {
				if err := vm.Resume(testContext(t)); err != nil {
					t.Fatal(err)
				}
			}
			var nodes, sets []any
			if err := vm.mon.Execute(testContext(t), "query-named-block-nodes", nil, &nodes); err != nil || len(nodes) != 2 {
				t.Errorf("%s, running %v: %d nodes, %v", b, running, len(nodes), err)
			}
			if err := vm.mon.Execute(testContext(t), "query-fdsets", nil, &sets); err != nil || len(sets) != 1 {
				t.Errorf("%s, running %v: %v, %v", b, running, sets, err)
			}
			checkOpenTimes(t, vm, d, 2) // in the set, and in the node
		}
	}
}

// checkOpenTimes checks how often QEMU has files in a disk's directory open.
func checkOpenTimes(t testing.TB, vm *VM, d hypervisor.Disk, want int) {
	t.Helper()
	fds, err := filepath.Glob("/proc/" + strconv.Itoa(vm.PID()) + "/fd/*")
	if err != nil || len(fds) == 0 {
		t.Fatalf("%d open files, %v", len(fds), err)
	}
	n := 0
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && filepath.Base(target) == d.ID {
			n++
		}
	}
	if n != want {
		t.Errorf("QEMU has %d files of disks open, want %d", n, want)
	}
}

// All kinds of asynchronous I/O that this QEMU supports work, even inside its
// seccomp sandbox.
func TestDiskAIO(t *testing.T) {
	spec := testSpec(t, testKernel(t, "", idle))
	vm := launch(t, spec)
	for i, aio := range []hypervisor.DiskAIO{hypervisor.AIOThreads, hypervisor.AIONative, hypervisor.AIOUring} {
		d := testDisk(t, "d"+strconv.Itoa(i), hypervisor.VirtioSCSI)
		d.AIO, d.Cache.Direct = aio, true
		err := vm.Attach(testContext(t), d)
		if aio == hypervisor.AIOUring && err != nil {
			t.Logf("no io_uring: %v", err)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", aio, err)
		}
	}
}

// QEMU locks a writable disk: no other machine can use it meanwhile, but any
// can afterwards. Read-only disks can be shared.
func TestDiskIsLocked(t *testing.T) {
	d := testDisk(t, "x", hypervisor.VirtioSCSI)
	other := d
	other.File = openDisk(t, d.File.Name(), os.O_RDWR)
	first, second := launch(t, testSpec(t, testKernel(t, "", idle))), launch(t, testSpec(t, testKernel(t, "", idle)))
	attachDisk(t, first, d)
	for _, refused := range []hypervisor.Disk{other, readOnly(t, d)} {
		if err := second.Attach(testContext(t), refused); err == nil || !strings.Contains(err.Error(), "lock") {
			t.Errorf("read-only %v, attached elsewhere for writing: %v", refused.ReadOnly, err)
		}
	}
	if err := first.Resume(testContext(t)); err != nil {
		t.Fatal(err)
	}
	<-first.ticks
	unplug(t, first, "x")
	attachDisk(t, first, readOnly(t, d))
	attachDisk(t, second, readOnly(t, d))
}
