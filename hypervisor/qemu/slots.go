package qemu

import (
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

// device is what is known of an ID in use.
type device struct {
	slot uint8 // on podBus
	busy bool  // Attach or Detach works on it
	// remains is what QEMU still has to be told once the device is gone.
	remains []command
}

// reserve keeps two attaches from using the same names or the same slot in
// QEMU. settle or unreserve must follow.
func (vm *VM) reserve(id string) (slot uint8, err error) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if _, ok := vm.devices[id]; ok {
		return 0, fmt.Errorf("device ID %q: %w", id, errdefs.ErrAlreadyExists)
	}
	var used [lastSlot + 1]bool
	for _, d := range vm.devices {
		used[d.slot] = true
	}
	for slot = firstSlot; slot <= lastSlot; slot++ {
		if !used[slot] {
			vm.devices[id] = &device{slot: slot, busy: true}
			return slot, nil
		}
	}
	return 0, fmt.Errorf("device %q: all %d slots are in use: %w", id, lastSlot, errdefs.ErrResourceExhausted)
}

// settle ends the work on an ID that stays in use.
func (vm *VM) settle(id string, remains []command) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	d := vm.devices[id]
	d.busy, d.remains = false, remains
}

// unreserve frees an ID and its slot.
func (vm *VM) unreserve(id string) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	delete(vm.devices, id)
}

// claim begins the work of taking a device out. settle or unreserve must
// follow.
func (vm *VM) claim(id string) (remains []command, err error) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	d, ok := vm.devices[id]
	switch {
	case !ok:
		return nil, fmt.Errorf("device %q: %w", id, errdefs.ErrNotFound)
	case d.busy:
		return nil, fmt.Errorf("device %q is being attached or detached: %w", id, errdefs.ErrFailedPrecondition)
	}
	d.busy = true
	return d.remains, nil
}

// PCIPath implements hypervisor.VM.
func (vm *VM) PCIPath(id string) (hypervisor.PCIPath, error) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	d, ok := vm.devices[id]
	if !ok {
		return "", fmt.Errorf("find device %q of virtual machine %s: %w", id, vm.id, errdefs.ErrNotFound)
	}
	return hypervisor.PCIPath(fmt.Sprintf("%02x/%02x", podBusSlot, d.slot)), nil
}
