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

// size returns how many places there are: PCI slots or SCSI targets.
func (b bus) size() int {
	if b == scsiBus {
		return lastTarget - firstTarget + 1
	}
	return len(slotOrder)
}

// interruptLines is how many interrupt lines the slots of a bridge share: slot n
// has line n modulo 4 (PCI-to-PCI Bridge Architecture Specification 1.2, table
// 9-1).
const interruptLines = 4

// slotOrder has the slots in the order in which devices get them: first all of
// one interrupt line. Virtio devices use MSI-X and no line, but Linux routes the
// line of each device, by ACPI, when its driver takes it
// (drivers/acpi/pci_irq.c, acpi_pci_irq_enable), and a line's first time is slow.
var slotOrder = func() (order []int) {
	for line := range interruptLines {
		for slot := firstSlot + line; slot <= lastSlot; slot += interruptLines {
			order = append(order, slot)
		}
	}
	return order
}()

// nth returns the place that is tried as number n, below size.
func (b bus) nth(n int) int {
	if b == scsiBus {
		return firstTarget + n
	}
	return slotOrder[n]
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
