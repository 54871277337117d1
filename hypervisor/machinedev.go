package hypervisor

import "os"

// RNG is a random number generator (virtio 1.2, section 5.4) that takes its
// numbers from a file of the host.
type RNG struct {
	ID string
	// File is open for reading only. It stays the caller's: Attach passes a
	// duplicate on, and the monitor opens no path. The monitor sets
	// O_NONBLOCK on it.
	File *os.File
}

// Balloon is a memory balloon (virtio 1.2, section 5.5) that stays empty: the
// guest tells by it which pages it does not use, and the monitor gives them
// back to the host until the guest touches them again. The guest needs the
// driver virtio_balloon.
type Balloon struct {
	ID string
}

// DeviceID implements Device.
func (d RNG) DeviceID() string { return d.ID }

// DeviceID implements Device.
func (d Balloon) DeviceID() string { return d.ID }
