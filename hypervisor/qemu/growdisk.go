package qemu

import (
	"context"
	"fmt"
)

// GrowDisk implements hypervisor.DiskGrower. QEMU sets the length of a file, and
// of a block device asks for the length that it has by now
// (block/file-posix.c, raw_co_truncate); it tells the guest by an interrupt of
// the device.
func (vm *VM) GrowDisk(ctx context.Context, id string, bytes uint64) error {
	if err := vm.growDisk(ctx, id, bytes); err != nil {
		return vm.explain(ctx, fmt.Sprintf("grow disk %q of virtual machine", id), err)
	}
	return nil
}

func (vm *VM) growDisk(ctx context.Context, id string, bytes uint64) error {
	if _, err := vm.claim(id); err != nil {
		return err
	}
	defer vm.release(id)
	return vm.mon.Execute(ctx, "block_resize", map[string]any{"node-name": nodePrefix + id, "size": bytes}, nil)
}
