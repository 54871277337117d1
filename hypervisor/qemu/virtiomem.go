package qemu

import (
	"context"
	"fmt"
	"time"
)

const (
	// virtioMem is the ID of the virtio-mem device, of which there is one,
	// for all memory that can be plugged. No device of a caller's can have it
	// (deviceID).
	virtioMem = "pod.memory"
	// virtioMemUnit is the size in MiB that is plugged and unplugged, which
	// is also what Linux on x86 can at least (drivers/virtio/virtio_mem.c,
	// pageblock_nr_pages).
	virtioMemUnit = 2
	// sizeRepeat is after how long the device is asked for its size when no
	// event said that it has changed: QEMU limits the rate of these events
	// (monitor/monitor.c).
	sizeRepeat = 20 * time.Millisecond
)

// resizeVirtioMem wants the guest to take so many MiB, and waits until it has.
func (vm *VM) resizeVirtioMem(ctx context.Context, extra uint64) error {
	unit := vm.virtioMemBlock()
	most := (vm.spec.MaxMemoryMiB - vm.spec.MemoryMiB) / unit * unit
	extra = min((extra+unit-1)/unit*unit, most)
	if most == 0 {
		return nil
	}
	now, err := vm.countMemory(ctx)
	if err != nil {
		return err
	}
	if had := now - min(now, vm.spec.MemoryMiB); extra > had {
		if err := freeHugePages(sysHugePages, vm.spec.Memory.HugePageMiB, extra-had); err != nil {
			return err
		}
	}
	if err := vm.needVirtioMem(ctx, most); err != nil {
		return err
	}
	want := extra * mib
	if err := vm.run(ctx, virtioMemProperty("qom-set", "requested-size", want)); err != nil {
		return err
	}
	return vm.awaitSize(ctx, want)
}

// virtioMemBlock is the size in MiB that is plugged and unplugged: whole huge
// pages.
func (vm *VM) virtioMemBlock() uint64 { return max(virtioMemUnit, vm.spec.Memory.HugePageMiB) }

// needVirtioMem attaches the device unless it is there. It comes with the
// first change and cannot go any more. SetMemoryMiB is called once at a time.
func (vm *VM) needVirtioMem(ctx context.Context, most uint64) error {
	if vm.virtioMem {
		return nil
	}
	// The memory is only room: what the guest plugs of it is what is taken, at
	// once by the device or as it is used, and a plug for which there is
	// nothing is refused to the guest.
	add, remove := memoryObject(virtioMem, most, vm.spec.Memory)
	delete(add.args, "prealloc")
	if vm.spec.Memory.HugePageMiB != 0 {
		add.args["reserve"] = false
	}
	device := map[string]any{
		"driver":     "virtio-mem-pci",
		"memdev":     virtioMem + memorySuffix,
		"block-size": vm.virtioMemBlock() * mib,
	}
	if atOnce(vm.spec.Memory) {
		device["prealloc"] = true
	}
	err := vm.place(ctx, virtioMem, plan{backend: &backend{add: add, remove: remove}, device: onPodBus(virtioMem, device)})
	if err != nil {
		return fmt.Errorf("attach virtio-mem device: %w", err)
	}
	vm.virtioMem = true
	return nil
}

// awaitSize waits for the guest as long as ctx allows; that it does not do as
// it is asked is no error.
func (vm *VM) awaitSize(ctx context.Context, want uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	again := time.NewTicker(sizeRepeat)
	defer again.Stop()
	for {
		var size uint64
		get := virtioMemProperty("qom-get", "size", nil)
		err := vm.mon.Execute(ctx, get.name, get.args, &size)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil || size == want {
			return err
		}
		select {
		case <-again.C:
		case <-vm.mon.Done():
		case <-ctx.Done():
			return nil
		}
	}
}

// virtioMemProperty asks for a property of the device or, with a value, sets
// it.
func virtioMemProperty(how, name string, value any) command {
	args := map[string]any{"path": peripheral + virtioMem, "property": name}
	if value != nil {
		args["value"] = value
	}
	return command{how, args}
}
