package qemu

import (
	"os"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/internal/looptest"
)

// grownMiB is how large a disk of testDisk's becomes.
const grownMiB = 2 * diskMiB

// nodeBytes is the size of a disk as QEMU has it.
func nodeBytes(t testing.TB, vm *VM, id string) int64 {
	t.Helper()
	var nodes []struct {
		Name  string `json:"node-name"`
		Image struct {
			Size int64 `json:"virtual-size"`
		}
	}
	if err := vm.mon.Execute(testContext(t), "query-named-block-nodes", nil, &nodes); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Name == nodePrefix+id {
			return n.Image.Size
		}
	}
	t.Fatalf("QEMU has no node of disk %s: %+v", id, nodes)
	return 0
}

// QEMU grows the file of a disk, on each bus, with and without I/O threads and
// past the page cache.
func TestGrowFile(t *testing.T) {
	for _, b := range []hypervisor.DiskBus{hypervisor.VirtioBlk, hypervisor.VirtioSCSI} {
		for _, threads := range []uint32{0, 1} {
			spec := testSpec(t, testKernel(t, "", idle))
			spec.DiskThreads = threads
			vm := launch(t, spec)
			d := testDisk(t, "x", b)
			d.Cache.Direct = threads > 0
			attachDisk(t, vm, d)
			if err := vm.Resume(testContext(t)); err != nil {
				t.Fatal(err)
			}
			for range 2 { // of that size already is no error
				if err := vm.GrowDisk(testContext(t), "x", grownMiB<<20); err != nil {
					t.Errorf("%s, %d I/O threads: %v", b, threads, err)
				}
			}
			if info, err := os.Stat(d.File.Name()); err != nil || info.Size() != grownMiB<<20 {
				t.Errorf("%s: the file has %v, %v", b, info, err)
			}
			if got := nodeBytes(t, vm, "x"); got != grownMiB<<20 {
				t.Errorf("%s: QEMU has %d bytes", b, got)
			}
			if err := vm.GrowDisk(testContext(t), "y", grownMiB<<20); !errdefs.IsNotFound(err) {
				t.Errorf("a disk that is not there: %v", err)
			}
			unplugPaused(t, vm)
		}
	}
}

// unplugPaused checks that a disk that grew can still be forgotten: its ID is
// not busy.
func unplugPaused(t testing.TB, vm *VM) {
	t.Helper()
	if _, err := vm.claim("x"); err != nil {
		t.Fatal(err)
	}
	vm.release("x")
}

// A block device has grown before: QEMU sees all of it, and does not make it
// larger than it is.
func TestGrowBlockDevice(t *testing.T) {
	d := testDisk(t, "x", hypervisor.VirtioBlk)
	backing := d.File.Name()
	d.File = looptest.Over(t, backing, 0)
	vm := launch(t, testSpec(t, testKernel(t, "", idle)))
	attachDisk(t, vm, d)
	if err := vm.GrowDisk(testContext(t), "x", grownMiB<<20); !refused(err) {
		t.Errorf("more than the device has: %v", err)
	}
	looptest.Resize(t, d.File, backing, grownMiB<<20)
	if err := vm.GrowDisk(testContext(t), "x", diskMiB<<20+512); err != nil {
		t.Error(err)
	}
	if got := nodeBytes(t, vm, "x"); got != grownMiB<<20 {
		t.Errorf("QEMU has %d bytes", got)
	}
}
