package qemu

import (
	"fmt"

	"github.com/katabox/katabox/hypervisor"
)

// bus is where a device is attached.
type bus int

const (
	// pciBus is podBus, the default of every plan.
	pciBus bus = iota
	// scsiBus is the SCSI controller's.
	scsiBus
)

// firstTarget to lastTarget are the places on scsiBus: each disk has its own
// target, with one LUN (QEMU's include/hw/virtio/virtio-scsi.h,
// VIRTIO_SCSI_MAX_TARGET).
const firstTarget, lastTarget = 0, 255

// places returns the first and the last place on the bus: a PCI slot or a SCSI
// target.
func (b bus) places() (first, last int) {
	if b == scsiBus {
		return firstTarget, lastTarget
	}
	return firstSlot, lastSlot
}

// size returns how many places there are.
func (b bus) size() int {
	first, last := b.places()
	return last - first + 1
}

// put sets a device's place.
func (b bus) put(device map[string]any, at int) {
	if b == scsiBus {
		device["scsi-id"] = at
		return
	}
	device["addr"] = fmt.Sprintf("%#x", at)
}

// pciPath returns the guest's path to a slot of podBus.
func pciPath(slot int) hypervisor.PCIPath {
	return hypervisor.PCIPath(fmt.Sprintf("%02x/%02x", podBusSlot, slot))
}
