package qemu

import (
	"fmt"

	"github.com/katabox/katabox/hypervisor"
)

// bus is what a device is put on.
type bus int

const (
	// pciBus is podBus. It is every plan's if it says nothing else.
	pciBus bus = iota
	// scsiBus is the SCSI controller's.
	scsiBus
)

// firstTarget to lastTarget are the places on scsiBus: a target for each disk,
// whose only LUN it is (QEMU's include/hw/virtio/virtio-scsi.h,
// VIRTIO_SCSI_MAX_TARGET).
const firstTarget, lastTarget = 0, 255

// places are the first and the last place on the bus.
func (b bus) places() (first, last int) {
	if b == scsiBus {
		return firstTarget, lastTarget
	}
	return firstSlot, lastSlot
}

// size is how many places there are.
func (b bus) size() int {
	first, last := b.places()
	return last - first + 1
}

// put gives a device its place.
func (b bus) put(device map[string]any, at int) {
	if b == scsiBus {
		device["scsi-id"] = at
		return
	}
	device["addr"] = fmt.Sprintf("%#x", at)
}

// pciPath is where the guest finds a slot of podBus.
func pciPath(slot int) hypervisor.PCIPath {
	return hypervisor.PCIPath(fmt.Sprintf("%02x/%02x", podBusSlot, slot))
}
