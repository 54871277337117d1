package disk_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/guestfs/disk"
)

// The guest sees a block device with the sectors that it has, unless the options set
// others. A file has none.
func TestBlockSizesOfDevice(t *testing.T) {
	for _, test := range []struct {
		name              string
		sector            int // 0 is a file
		opts              disk.Options
		logical, physical uint32
	}{
		{name: "file"},
		{name: "sectors of 512 bytes", sector: 512, logical: 512, physical: 512},
		{name: "sectors of 4096 bytes", sector: 4096, logical: 4096, physical: 4096},
		{name: "smaller logical ones", sector: 4096, opts: disk.Options{LogicalBlockSize: 512}, logical: 512, physical: 4096},
		{name: "larger logical ones", sector: 512, opts: disk.Options{LogicalBlockSize: 4096}, logical: 4096, physical: 4096},
		{name: "smaller physical ones", sector: 4096, opts: disk.Options{PhysicalBlockSize: 512}, logical: 4096, physical: 4096},
		{name: "others", sector: 4096, opts: disk.Options{LogicalBlockSize: 1024, PhysicalBlockSize: 8192}, logical: 1024, physical: 8192},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := file(t, "image")
			if test.sector != 0 {
				dev := loopDevice(t, 0)
				if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_SET_BLOCK_SIZE, test.sector); err != nil {
					t.Fatal(err)
				}
				path = dev.Name()
			}
			_, vm := machine(t)
			test.opts.Bus = hypervisor.VirtioSCSI
			use(t, disk.NewPool(vm, test.opts), disk.Source{Path: path})
			d := vm.Devices()[0].(hypervisor.Disk)
			if d.LogicalBlockSize != test.logical || d.PhysicalBlockSize != test.physical {
				t.Errorf("blocks of %d and %d bytes, want %d and %d", d.LogicalBlockSize, d.PhysicalBlockSize, test.logical, test.physical)
			}
		})
	}
}
