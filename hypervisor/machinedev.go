package hypervisor

import "os"

// RNG is a random number generator (virtio 1.2, section 5.4) that reads from a
// file of the host.
type RNG struct {
	ID string
	// File is open for reading only. The caller owns it: Attach passes on a
	// duplicate, and the VMM opens no path. The VMM sets O_NONBLOCK on it.
	File *os.File
}

// Balloon is a memory balloon (virtio 1.2, section 5.5) that stays empty: over
// it the guest reports unused pages, and the VMM gives them back to the host
// until the guest touches them again. The guest needs the driver
// virtio_balloon.
type Balloon struct {
	ID string
}

// DeviceID implements Device.
func (d RNG) DeviceID() string { return d.ID }

// DeviceID implements Device.
func (d Balloon) DeviceID() string { return d.ID }
