package qemu

import (
	"context"
	"fmt"
)

// scsiController is the ID of the controller of all SCSI disks. No caller's
// device can have it (deviceID). QEMU names its bus after it.
const (
	scsiController = "pod.scsi"
	scsiBusName    = scsiController + ".0"
)

// A target is reused as late as possible (reserve): Linux learns of a disk's
// removal, and of the next one's arrival, by events that are handled in no
// fixed order (drivers/scsi/virtio_scsi.c, virtscsi_handle_event, a work item
// each), and could remove a target's new disk instead of the old one.

// attempt is an attempt to attach the controller.
type attempt struct {
	done chan struct{} // closed after err is set
	err  error
}

// needController attaches the controller unless it is attached. That happens
// with the first disk, and it stays: a machine without SCSI disks spends
// neither a slot nor the guest's scan of 256 targets on it.
func (vm *VM) needController(ctx context.Context) error {
	for {
		a, ours := vm.tryController()
		if ours {
			a.err = vm.attachController(ctx)
			close(a.done)
			return a.err
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			return fmt.Errorf("wait for a concurrent attempt: %w", context.Cause(ctx))
		}
		if a.err == nil {
			return nil
		}
	}
}

// tryController returns the current attempt, or a new one that the caller must
// make.
func (vm *VM) tryController() (a *attempt, ours bool) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if vm.controller == nil {
		vm.controller = &attempt{done: make(chan struct{})}
		return vm.controller, true
	}
	return vm.controller, false
}

// attachController attaches the controller; if that fails, the next disk may
// try again.
func (vm *VM) attachController(ctx context.Context) error {
	err := vm.placeOwn(ctx, scsiController, plan{device: onPodBus(scsiController, map[string]any{
		"driver":         ModelSCSI,
		"disable-legacy": "on",
	})})
	if err == nil {
		return nil
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	vm.controller = nil
	return err
}
