package hypervisor

import "context"

// Detacher is the part of a VM that takes devices out. A monitor that cannot
// fails with errdefs.ErrNotImplemented.
type Detacher interface {
	// Detach removes a device and waits until the guest has let go of it; of
	// a guest that does not, ctx is the end. A disk on the SCSI controller
	// goes without asking the guest: unmount it there before. It fails with
	// errdefs.ErrNotFound for an ID that is not attached, and with
	// errdefs.ErrFailedPrecondition while the machine was not resumed yet:
	// there is no guest then; the guest must be up. After another error the
	// device may still be there, and Detach may be called again.
	Detach(ctx context.Context, id string) error
}

// CPUPlugger is the part of a VM that changes the number of its CPUs. A monitor
// that cannot fails with errdefs.ErrNotImplemented.
type CPUPlugger interface {
	// SetVCPUs gives the machine more CPUs, or takes out those that it has
	// given it, until there are n, or as near as it gets: now is how many the
	// guest may use then.
	// There are never fewer than Spec.VCPUs nor more than Spec.MaxVCPUs;
	// that is told by now and is no error. A CPU that came in is of use when
	// the guest has brought it online. One goes out, the last one in first,
	// when the guest has let go of it; of a guest that does not, ctx is the
	// end, now tells what remains, and that is no error either. Before an
	// error some CPUs may have changed, and now counts them. The machine must
	// have been resumed (errdefs.ErrFailedPrecondition). One call runs at a
	// time; another waits for it, within its ctx.
	SetVCPUs(ctx context.Context, n uint32) (now uint32, err error)
}

// MemoryPlugger is the part of a VM that changes the size of its memory. A
// monitor that cannot fails with errdefs.ErrNotImplemented.
type MemoryPlugger interface {
	// SetMemoryMiB changes the memory to n MiB, boot memory included, or as
	// near as it gets: now is how much there is then, in MiB. It is more
	// than n by what n is off the model's unit (MemoryModel), never less
	// than Spec.MemoryMiB, nor more than Spec.MaxMemoryMiB. Memory that does not shrink, because
	// the model cannot or the guest does not give it back until ctx ends, is told by
	// now and is no error. Memory that came in is of use when the guest has
	// brought it online. The machine must have been resumed
	// (errdefs.ErrFailedPrecondition); without Spec.MaxMemoryMiB there is
	// nothing to plug (errdefs.ErrNotImplemented). One call runs at a time;
	// another waits for it, within its ctx.
	SetMemoryMiB(ctx context.Context, n uint64) (now uint64, err error)
}

// DiskGrower is the part of a VM that makes its disks larger. A monitor that
// cannot fails with errdefs.ErrNotImplemented.
type DiskGrower interface {
	// GrowDisk makes an attached Disk as large as its file or block device has to
	// be: a file is grown to that many bytes, a block device must have them
	// already, and the guest sees all that it has. Fewer bytes than the file
	// has would cut it: the caller must not ask for that. The guest is told, and
	// sees the size some time later. It fails with errdefs.ErrNotFound for an ID
	// that is not attached, and after another error the size may have changed.
	GrowDisk(ctx context.Context, id string, bytes uint64) error
}
