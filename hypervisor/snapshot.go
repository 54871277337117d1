package hypervisor

import (
	"context"
	"os"
)

// Layout is what a machine has besides its Spec.
type Layout struct {
	// Devices are the attached devices, by their IDs, and where the guest finds
	// them.
	Devices map[string]PCIPath `json:"devices"`
	// ModulesMiB are the sizes of the memory modules that were plugged, in order.
	ModulesMiB []uint64 `json:"modules_mib,omitempty"`
	// VCPUs is how many CPUs the guest may use, those at boot included.
	VCPUs uint32 `json:"vcpus"`
	// TSCKHz is the measured rate of the host's time stamp counter if the guest has
	// that counter itself, as with TCG: it was told the rate when it booted. It is 0
	// with KVM, and if the host's has no constant rate.
	TSCKHz uint64 `json:"tsc_khz,omitempty"`
}

// Snapshotter is the part of a VM that saves the whole machine, so that another
// one continues from it. A VM without that ability returns
// errdefs.ErrNotImplemented.
type Snapshotter interface {
	// SaveAll pauses the machine and writes all of it to state, a file or a
	// pipe that the caller owns: the memory, the CPUs and the devices. A vsock
	// device must have been detached first. Resume continues the machine
	// afterwards, also after an error.
	SaveAll(ctx context.Context, state *os.File) error
	// LoadAll reads what SaveAll wrote into a machine that was launched with
	// Spec.Awaits and that has the devices named there. It was written by a
	// machine with the same description (Monitor.Describe). After an error the
	// machine has ended, or can only be stopped.
	LoadAll(ctx context.Context, state *os.File) error
	// Layout fails with errdefs.ErrFailedPrecondition if the machine has
	// something that cannot be described so: SCSI disks, or virtio-mem.
	Layout(ctx context.Context) (Layout, error)
	// Version is the VMM's, such as "10.0.2".
	Version() string
}
