package qemu

import (
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

// deviceState is whether QEMU has a device whose ID is in use.
type deviceState int

const (
	attached deviceState = iota // or being attached
	unsure                      // QEMU has not answered whether it is attached
	gone                        // only remains are left to be done
)

// device is what is known about an ID in use.
//
//	reserve ──> busy <───claim, claimIn─── attached, unsure, gone
//	             │ └───settle, release──────────────^
//	             └──unreserve──> free
type device struct {
	bus   bus
	at    int // its place on the bus
	state deviceState
	busy  bool // a call works on it
	// remains has the commands to run once the device is gone.
	remains []command
}

// reserve prevents two Attach calls from using the same names or the same place
// in QEMU. settle or unreserve must follow.
func (vm *VM) reserve(id string, b bus) (at int, err error) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if _, ok := vm.devices[id]; ok {
		return 0, fmt.Errorf("device ID %q: %w", id, errdefs.ErrAlreadyExists)
	}
	at, ok := vm.placeFor(id, b)
	if !ok {
		return 0, fmt.Errorf("device %q: all %d slots are in use: %w", id, b.size(), errdefs.ErrResourceExhausted)
	}
	vm.devices[id] = &device{bus: b, at: at, busy: true}
	if b == scsiBus {
		vm.nextTarget = at + 1
	}
	return at, nil
}

// placeFor finds a device's place: that of the saved machine, or a free one. The
// caller holds mu.
func (vm *VM) placeFor(id string, b bus) (at int, ok bool) {
	if slot, ok := vm.awaited(id); ok && b == pciBus {
		return slot, true
	}
	return vm.freePlace(b)
}

// freePlace finds a free place. The caller holds mu. On scsiBus the search
// begins after the last place that was used: Linux learns of a disk's removal,
// and of another's arrival, by events without a fixed order
// (drivers/scsi/virtio_scsi.c: each is a separate work item), and could take a
// target's new disk for the old one.
func (vm *VM) freePlace(b bus) (at int, ok bool) {
	used := make(map[int]bool)
	for _, d := range vm.devices {
		if d.bus == b {
			used[d.at] = true
		}
	}
	for id := range vm.awaitedDevices() {
		if slot, ok := vm.awaited(id); ok && b == pciBus {
			used[slot] = true
		}
	}
	skip := 0
	if b == scsiBus {
		skip = vm.nextTarget - firstTarget
	}
	for i := range b.size() {
		if at = b.nth((skip + i) % b.size()); !used[at] {
			return at, true
		}
	}
	return 0, false
}

// settle ends the work on an ID that stays in use.
func (vm *VM) settle(id string, state deviceState, remains []command) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	d := vm.devices[id]
	d.busy, d.state, d.remains = false, state, remains
}

// release ends the work on an ID about whose device nothing new is known.
func (vm *VM) release(id string) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	vm.devices[id].busy = false
}

// unreserve frees an ID and its place.
func (vm *VM) unreserve(id string) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	delete(vm.devices, id)
}

// claim begins work on a caller's device. settle, release or unreserve must follow.
func (vm *VM) claim(id string) (remains []command, err error) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	d, err := vm.find(id)
	if err != nil {
		return nil, err
	}
	if d.busy {
		return nil, fmt.Errorf("another call works on device %q: %w", id, errdefs.ErrFailedPrecondition)
	}
	d.busy = true
	return d.remains, nil
}

// claimIn is claim for any device, if it is in that state and no call works on it.
func (vm *VM) claimIn(id string, state deviceState) (remains []command, ok bool) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	d, ok := vm.devices[id]
	if !ok || d.state != state || d.busy {
		return nil, false
	}
	d.busy = true
	return d.remains, true
}

// find finds a caller's device; it ignores our own (scsiController). The caller
// holds mu.
func (vm *VM) find(id string) (*device, error) {
	d, ok := vm.devices[id]
	if !ok || !deviceID.MatchString(id) {
		return nil, fmt.Errorf("device %q: %w", id, errdefs.ErrNotFound)
	}
	return d, nil
}

// Locate implements hypervisor.VM.
func (vm *VM) Locate(id string) (hypervisor.Location, error) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	d, err := vm.find(id)
	if err != nil {
		return hypervisor.Location{}, fmt.Errorf("find in virtual machine %s: %w", vm.id, err)
	}
	if d.bus == pciBus {
		return hypervisor.Location{PCIPath: pciPath(d.at)}, nil
	}
	return hypervisor.Location{
		PCIPath: pciPath(vm.devices[scsiController].at),
		LUN:     &hypervisor.LUN{Target: uint8(d.at)},
	}, nil
}

// PCIPath implements hypervisor.VM.
func (vm *VM) PCIPath(id string) (hypervisor.PCIPath, error) {
	where, err := vm.Locate(id)
	if err != nil {
		return "", err
	}
	if where.LUN != nil {
		return "", fmt.Errorf("device %q of virtual machine %s is a SCSI disk: %w", id, vm.id, errdefs.ErrFailedPrecondition)
	}
	return where.PCIPath, nil
}
