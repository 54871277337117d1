package hypervisor

import "context"

// Detacher is the part of a VM that removes devices. A VM without that ability
// returns errdefs.ErrNotImplemented.
type Detacher interface {
	// Detach removes a device and waits, within ctx, until the guest has
	// released it. A disk on the SCSI controller is removed without asking the
	// guest: unmount it there first. The guest must be up: Detach fails with
	// errdefs.ErrFailedPrecondition before the machine was resumed. It fails
	// with errdefs.ErrNotFound for an ID that is not attached. After
	// ErrLeftover the device is removed, but the VMM may still use its back end:
	// call Detach again, or attach another device of that ID. After another error
	// the device may still be there, and Detach may be called again.
	// Clean-up may take a few seconds more than ctx.
	Detach(ctx context.Context, id string) error
}

// CPUPlugger is the part of a VM that changes the number of its CPUs. A VM
// without that ability returns errdefs.ErrNotImplemented.
type CPUPlugger interface {
	// SetVCPUs hot-plugs CPUs, or unplugs hot-plugged ones, until there are n
	// or as near as possible; now is how many the guest may use then. There are
	// never fewer than Spec.VCPUs nor more than Spec.MaxVCPUs; a result that
	// differs from n for that reason is not an error. A new CPU is usable once
	// the guest has brought it online. The last plugged CPU is unplugged first,
	// once the guest has released it. If the guest does not before ctx ends, now
	// counts the remaining CPUs, which is not an error either. The guest may still
	// release one later, because the request cannot be withdrawn. On an error some
	// CPUs may have changed, and now counts them. The machine must have been
	// resumed (errdefs.ErrFailedPrecondition). Calls are serialized; each waits
	// within its ctx.
	SetVCPUs(ctx context.Context, n uint32) (now uint32, err error)
}

// MemoryPlugger is the part of a VM that changes the size of its memory. A VM
// without that ability returns errdefs.ErrNotImplemented.
type MemoryPlugger interface {
	// SetMemoryMiB changes the memory to n MiB, boot memory included, or as
	// near as possible; now is the resulting size in MiB. It is n rounded up to
	// the model's unit (MemoryModel), never less than Spec.MemoryMiB, nor more
	// than Spec.MaxMemoryMiB. A model that can be plugged only a few times may add
	// more than n, up to most; a most below n is n. If the memory does not shrink,
	// because the model cannot or the guest does not release it before ctx ends,
	// now is larger, which is not an error. The request is then withdrawn, and the
	// guest keeps the size that now says. New memory is usable once the guest has
	// brought it online. Clean-up may take a few seconds more than ctx. The
	// machine must have been resumed (errdefs.ErrFailedPrecondition); without
	// Spec.MaxMemoryMiB there is nothing to plug (errdefs.ErrNotImplemented).
	// Calls are serialized; each waits within its ctx.
	SetMemoryMiB(ctx context.Context, n, most uint64) (now uint64, err error)
}

// DiskGrower is the part of a VM that makes its disks larger. A monitor that
// cannot fails with errdefs.ErrNotImplemented.
type DiskGrower interface {
	// GrowDisk enlarges an attached Disk. A file is grown to that many bytes; it
	// must not be larger already, because GrowDisk would truncate it. A block
	// device must have the size already, and the guest sees all of it. The guest
	// is notified, and sees the new size some time later. GrowDisk fails with
	// errdefs.ErrNotFound for an ID that is not attached; after another error the
	// size may have changed.
	GrowDisk(ctx context.Context, id string, bytes uint64) error
}
