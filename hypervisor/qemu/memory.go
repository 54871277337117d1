package qemu

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

const (
	mib = 1 << 20
	// exactDIMMs is how many modules have exactly the size needed. Each later
	// one is at least as large as all before it together, as far as the caller
	// allows, so that the few slots suffice for a pod of many containers.
	exactDIMMs = 4
	// dimmPrefix begins the ID of a memory module, followed by its number. No
	// caller's device can have such an ID (deviceID).
	dimmPrefix = "pod.dimm."
	// memorySuffix is appended to a device's ID to name its memory.
	memorySuffix = ".memory"
)

// SetMemoryMiB implements hypervisor.MemoryPlugger. Memory is shared with the
// device back ends in other processes, which QEMU informs of each new region.
// With MemoryDIMM each call plugs one module of any size: the slots are few,
// and a machine with a vhost-user back end takes at most seven modules whatever
// its slots, because the back end's memory table has 8 rows
// (hw/virtio/vhost-user.c, VHOST_MEMORY_BASELINE_NREGIONS). Without a free slot
// it fails with errdefs.ErrResourceExhausted. virtio-mem is a single region.
func (vm *VM) SetMemoryMiB(ctx context.Context, n, most uint64) (uint64, error) {
	const what = "set memory of virtual machine"
	if !pluggable(vm.spec) {
		return vm.spec.MemoryMiB, fmt.Errorf("%s %s: it has no room for more: %w", what, vm.id, errdefs.ErrNotImplemented)
	}
	n = min(max(n, vm.spec.MemoryMiB), vm.spec.MaxMemoryMiB)
	return resize(ctx, vm, what, func(ctx context.Context) error {
		if vm.spec.MemoryModel == hypervisor.MemoryVirtio {
			return vm.resizeVirtioMem(ctx, n-vm.spec.MemoryMiB)
		}
		return vm.plugDIMM(ctx, n, min(most, vm.spec.MaxMemoryMiB))
	}, vm.countMemory)
}

// countMemory returns all memory that the guest has or may bring online, in
// MiB.
func (vm *VM) countMemory(ctx context.Context) (uint64, error) {
	var size struct { // qapi/machine.json, MemoryInfo
		Base    uint64 `json:"base-memory"`
		Plugged uint64 `json:"plugged-memory"`
	}
	err := vm.mon.Execute(ctx, "query-memory-size-summary", nil, &size)
	return (size.Base + size.Plugged) / mib, err
}

// plugDIMM adds one module of at least the size that is missing to n MiB. What it
// adds beyond that does not exceed most. Modules are never removed.
func (vm *VM) plugDIMM(ctx context.Context, n, most uint64) error {
	now, err := vm.countMemory(ctx)
	if err != nil || n <= now {
		return err
	}
	var devices []any
	if err := vm.mon.Execute(ctx, "query-memory-devices", nil, &devices); err != nil {
		return err
	}
	unit := max(hypervisor.MemoryBlockMiB(vm.spec.MemoryMiB), vm.spec.Memory.HugePageMiB)
	size := (n - now + unit - 1) / unit
	if before := now - vm.spec.MemoryMiB; len(devices) >= exactDIMMs && most > now {
		size = max(size, min(before, most-now)/unit)
	}
	size = min(size, (vm.spec.MaxMemoryMiB-now)/unit) * unit
	if size == 0 {
		return nil
	}
	if len(devices) >= int(vm.spec.MemorySlots) {
		return fmt.Errorf("plug %d MiB: all %d memory slots are in use: %w", size, len(devices), errdefs.ErrResourceExhausted)
	}
	return vm.plugModule(ctx, len(devices), size)
}
