package qemu

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// virtioMem is the ID of the only virtio-mem device, which is for all
	// memory that can be plugged. No caller's device can have it (deviceID).
	virtioMem = "pod.memory"
	// virtioMemUnit is the unit of plugging in MiB, also the smallest that
	// Linux on x86 supports (drivers/virtio/virtio_mem.c, pageblock_nr_pages).
	virtioMemUnit = 2
	// sizeRepeat is after how long the device is asked for its size if no event
	// reported a change: QEMU limits the rate of these events
	// (monitor/monitor.c).
	sizeRepeat = 20 * time.Millisecond
)

// resizeVirtioMem requests that the guest plug that many MiB, and waits until
// it has. What the guest has not done when ctx ends is not requested any more: it
// would do it later, and take memory that a container was given meanwhile.
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
	err = vm.requestSize(ctx, want)
	if err == nil {
		err = vm.awaitSize(ctx, want)
	}
	if ctx.Err() != nil {
		err = errors.Join(err, vm.keepSize(ctx, want))
	}
	return err
}

func (vm *VM) requestSize(ctx context.Context, bytes uint64) error {
	return vm.run(ctx, virtioMemProperty("qom-set", "requested-size", bytes))
}

func (vm *VM) virtioMemSize(ctx context.Context) (bytes uint64, err error) {
	get := virtioMemProperty("qom-get", "size", nil)
	return bytes, vm.mon.Execute(ctx, get.name, get.args, &bytes)
}

// keepSize requests the present size, after ctx has ended with that much requested.
// The guest may change the size just then, so it goes on until both are the same.
func (vm *VM) keepSize(ctx context.Context, requested uint64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	for {
		size, err := vm.virtioMemSize(ctx)
		if err == nil && size == requested {
			return nil
		}
		if err == nil {
			err = vm.requestSize(ctx, size)
		}
		if err != nil {
			return fmt.Errorf("keep the present amount of virtio-mem memory: %w", err)
		}
		requested = size
	}
}

// virtioMemBlock returns the unit of plugging in MiB: whole huge pages.
func (vm *VM) virtioMemBlock() uint64 { return max(virtioMemUnit, vm.spec.Memory.HugePageMiB) }

// needVirtioMem attaches the device unless it is attached. That happens with
// the first change, and it is never detached. SetMemoryMiB runs one call at a
// time.
func (vm *VM) needVirtioMem(ctx context.Context, most uint64) error {
	if vm.virtioMem {
		return nil
	}
	// The memory object only reserves room. What the guest plugs is allocated
	// on the host, immediately by the device or as it is used; if the host has
	// none left, the guest's plug request is refused.
	add, remove := memoryObject(virtioMem, most, vm.spec.Memory)
	delete(add.args, "prealloc")
	if vm.spec.Memory.HugePageMiB != 0 {
		add.args["reserve"] = false
	}
	device := map[string]any{
		"driver":     ModelMemory,
		"memdev":     virtioMem + memorySuffix,
		"block-size": vm.virtioMemBlock() * mib,
	}
	if atOnce(vm.spec.Memory) {
		device["prealloc"] = true
	}
	err := vm.placeOwn(ctx, virtioMem, plan{backend: &backend{add: add, remove: remove}, device: onPodBus(virtioMem, device)})
	if err != nil {
		return fmt.Errorf("attach virtio-mem device: %w", err)
	}
	vm.virtioMem = true
	return nil
}

// awaitSize waits for the guest within ctx; it is no error if the guest does
// not comply.
func (vm *VM) awaitSize(ctx context.Context, want uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	again := time.NewTicker(sizeRepeat)
	defer again.Stop()
	for {
		size, err := vm.virtioMemSize(ctx)
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

// virtioMemProperty returns the command that reads a property of the device or,
// with a value, sets it.
func virtioMemProperty(how, name string, value any) command {
	args := map[string]any{"path": peripheral + virtioMem, "property": name}
	if value != nil {
		args["value"] = value
	}
	return command{how, args}
}
