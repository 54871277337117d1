package fake

import (
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

// scsiController is the PCI path of the SCSI controller, behind a bridge
// without other devices.
const scsiController hypervisor.PCIPath = "02/01"

// Locate implements hypervisor.VM: each PCI device gets the lowest free slot
// behind a bridge in slot 1, and each SCSI disk the lowest free target.
func (vm *VM) Locate(id string) (hypervisor.Location, error) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	i := vm.find(id)
	if i < 0 {
		return hypervisor.Location{}, fmt.Errorf("find device %q of virtual machine %s: %w", id, vm.Spec.ID, errdefs.ErrNotFound)
	}
	at := vm.devices[i].slot
	if onSCSI(vm.devices[i].Device) {
		return hypervisor.Location{PCIPath: scsiController, LUN: &hypervisor.LUN{Target: uint8(at)}}, nil
	}
	return hypervisor.Location{PCIPath: hypervisor.PCIPath(fmt.Sprintf("01/%02x", at))}, nil
}

// PCIPath implements hypervisor.VM.
func (vm *VM) PCIPath(id string) (hypervisor.PCIPath, error) {
	where, err := vm.Locate(id)
	if err == nil && where.LUN != nil {
		err = fmt.Errorf("device %q of virtual machine %s is a SCSI disk: %w", id, vm.Spec.ID, errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		return "", err
	}
	return where.PCIPath, nil
}

func onSCSI(d hypervisor.Device) bool {
	disk, ok := d.(hypervisor.Disk)
	return ok && disk.Bus == hypervisor.VirtioSCSI
}
