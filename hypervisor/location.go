package hypervisor

import "fmt"

// PCIPath is a device's place on the guest's PCI buses: the slots (PCI device
// numbers) from the root bus down to the device, two hexadecimal digits each,
// separated by slashes: "01/1e" is slot 0x1e behind the bridge in slot 1. Bus
// numbers do not occur, because the guest assigns them.
type PCIPath string

// Location is where the guest finds a device.
type Location struct {
	// PCIPath is that of the device, or of its SCSI controller.
	PCIPath PCIPath
	// LUN is the disk's address at the controller; nil for a PCI device.
	LUN *LUN
}

// LUN is the address of a disk at its SCSI controller, on channel 0. Linux
// shows it as the last two numbers of a SCSI device's name: "0:0:3:0" is target
// 3, unit 0.
type LUN struct {
	Target uint8
	Unit   uint16
}

// String returns the address as Linux writes it: "3:0".
func (l LUN) String() string { return fmt.Sprintf("%d:%d", l.Target, l.Unit) }
