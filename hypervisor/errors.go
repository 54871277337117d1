package hypervisor

import "errors"

// Why a VM ended; see VM.Err.
var (
	// ErrStopped means that Stop ended it.
	ErrStopped = errors.New("virtual machine was stopped")
	// ErrPowerOff means that the guest shut down, powered off or reset:
	// a guest whose init dies panics, and a panic resets the machine.
	ErrPowerOff = errors.New("guest powered off")
)

// ErrLeftover means that a device was removed, but that the VMM still has its back
// end open; see Detacher.
var ErrLeftover = errors.New("the device is gone, and a part of its back end is left in the virtual machine monitor")
