package qemu

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

// SaveAll implements hypervisor.Snapshotter. QEMU writes memory page by page, a
// page of zeros as a few bytes. So it makes no difference what the memory is made
// of; but QEMU reads all of it, and the host allocates what it had not yet
// (mm/shmem.c: reading a hole of a mapped file fills it).
func (vm *VM) SaveAll(ctx context.Context, state *os.File) error {
	if err := vm.Pause(ctx); err != nil {
		return err
	}
	if err := vm.migrate(ctx, save, state, whole); err != nil {
		return vm.explain(ctx, "save the whole virtual machine", err)
	}
	return nil
}

// LoadAll implements hypervisor.Snapshotter.
func (vm *VM) LoadAll(ctx context.Context, state *os.File) error {
	const what = "load saved state into virtual machine"
	if missing := vm.missing(); len(missing) > 0 {
		return fmt.Errorf("%s %s: it lacks the devices %q of the saved one: %w", what, vm.id, missing, errdefs.ErrFailedPrecondition)
	}
	if err := vm.migrate(ctx, load, state, whole); err != nil {
		return vm.explain(ctx, what, err)
	}
	return nil
}

// prepare gives a new machine what it does not boot with: a template's state, or
// the memory and the CPUs of the saved machine whose state it awaits.
func (vm *VM) prepare(ctx context.Context) error {
	switch t, l := vm.spec.Template, vm.spec.Awaits; {
	case t != nil:
		return vm.load(ctx, *t)
	case l != nil:
		return vm.plugAwaited(ctx, *l)
	}
	return nil
}

func (vm *VM) plugAwaited(ctx context.Context, l hypervisor.Layout) error {
	if len(l.ModulesMiB) > int(vm.spec.MemorySlots) || l.VCPUs > max(vm.spec.VCPUs, vm.spec.MaxVCPUs) {
		return fmt.Errorf("the saved machine has %d memory modules and %d CPUs, this one at most %d and %d: %w",
			len(l.ModulesMiB), l.VCPUs, vm.spec.MemorySlots, vm.spec.MaxVCPUs, errdefs.ErrFailedPrecondition)
	}
	for i, size := range l.ModulesMiB {
		if size > maxMemoryMiB {
			return fmt.Errorf("the saved machine has a memory module of %d MiB, want at most %d: %w", size, maxMemoryMiB, errdefs.ErrInvalidArgument)
		}
		if err := vm.plugModule(ctx, i, size); err != nil {
			return fmt.Errorf("plug memory of the saved machine: %w", err)
		}
	}
	if vm.spec.Accel == hypervisor.AccelTCG {
		vm.allowed.Store(l.VCPUs)
		return nil
	}
	if err := vm.setVCPUs(ctx, int(max(l.VCPUs, vm.spec.VCPUs))); err != nil {
		return fmt.Errorf("plug CPUs of the saved machine: %w", err)
	}
	return nil
}

// missing lists the devices that the saved machine had and this one has not.
func (vm *VM) missing() (ids []string) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(vm.awaitedDevices())) {
		if d := vm.devices[id]; d == nil || d.state == gone {
			ids = append(ids, id)
		}
	}
	return ids
}

// Layout implements hypervisor.Snapshotter.
func (vm *VM) Layout(ctx context.Context) (hypervisor.Layout, error) {
	l := hypervisor.Layout{VCPUs: vm.given(), TSCKHz: vm.tscKHz}
	var err error
	if l.Devices, err = vm.places(); err == nil {
		l.ModulesMiB, err = vm.modules(ctx)
	}
	if err == nil && vm.spec.Accel != hypervisor.AccelTCG {
		l.VCPUs, err = vm.countCPUs(ctx)
	}
	if err != nil {
		return hypervisor.Layout{}, vm.explain(ctx, "describe virtual machine", err)
	}
	return l, nil
}

// places returns where the devices are, all of which are a caller's PCI devices.
func (vm *VM) places() (map[string]hypervisor.PCIPath, error) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	all := make(map[string]hypervisor.PCIPath, len(vm.devices))
	for id, d := range vm.devices {
		if d.state == gone {
			continue
		}
		if d.bus != pciBus || !deviceID.MatchString(id) {
			return nil, fmt.Errorf("it has the device %q: %w", id, errdefs.ErrFailedPrecondition)
		}
		all[id] = pciPath(d.at)
	}
	return all, nil
}

// modules returns the sizes of the memory modules in MiB, in the order in which
// they were plugged.
func (vm *VM) modules(ctx context.Context) (sizes []uint64, err error) {
	var devices []struct { // qapi/machine.json, MemoryDeviceInfo
		Data struct {
			ID   string `json:"id"`
			Size uint64 `json:"size"`
		} `json:"data"`
	}
	if err := vm.mon.Execute(ctx, "query-memory-devices", nil, &devices); err != nil {
		return nil, err
	}
	sizes = make([]uint64, len(devices))
	for _, d := range devices {
		number, err := strconv.Atoi(strings.TrimPrefix(d.Data.ID, dimmPrefix))
		if err != nil || number < 0 || number >= len(sizes) {
			return nil, fmt.Errorf("it has the memory device %q: %w", d.Data.ID, errdefs.ErrFailedPrecondition)
		}
		sizes[number] = d.Data.Size / mib
	}
	return sizes, nil
}

// awaitedDevices returns the saved machine's devices.
func (vm *VM) awaitedDevices() map[string]hypervisor.PCIPath {
	if vm.spec.Awaits == nil {
		return nil
	}
	return vm.spec.Awaits.Devices
}

// awaited returns the slot that a device of the saved machine had.
func (vm *VM) awaited(id string) (slot int, ok bool) {
	path, ok := vm.awaitedDevices()[id]
	if !ok {
		return 0, false
	}
	for slot = firstSlot; slot <= lastSlot; slot++ {
		if pciPath(slot) == path {
			return slot, true
		}
	}
	return 0, false
}
