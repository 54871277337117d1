package hypervisor

import "context"

// Monitor makes virtual machines.
type Monitor interface {
	// Launch starts the VMM process with the bare machine, paused before its
	// first instruction. The process ends with the caller's process, even if
	// that is killed. ctx bounds the launch, not the machine's life. On an
	// error nothing is left behind.
	Launch(ctx context.Context, spec Spec) (VM, error)
	// Describe returns the machine as it is described to the VMM, without what
	// is specific to one machine: ID, Jail, Memory, NetworkNamespace, Template,
	// Awaits, ExtraMonitor. Two Specs with the same description, and the same contents
	// in their files, make the same machine.
	Describe(spec Spec) ([]string, error)
}

// Attacher is the part of a VM that attaches devices.
type Attacher interface {
	// Attach adds a device. It may be called before and after Resume.
	Attach(ctx context.Context, d Device) error
}

// MemoryOwner is a VMM process with the guest's memory in it, where no other
// process can map it.
type MemoryOwner interface {
	// Hold returns the process's id, which is no other process's until
	// Release; ok is false, and Release must not be called, if the process has
	// ended. It is for the time of a system call.
	Hold() (pid int, ok bool)
	Release()
	// User returns the process's user and group.
	User() (uid, gid uint32)
}

// privateMemory is a VM whose memory may be private to its process.
type privateMemory interface {
	// MemoryOwner returns the process, nil if the memory is shared.
	MemoryOwner() MemoryOwner
}

// OwnerOf returns the process in which the machine's memory is private, nil if
// the memory is shared with the device back ends.
func OwnerOf(vm Attacher) MemoryOwner {
	if p, ok := vm.(privateMemory); ok {
		return p.MemoryOwner()
	}
	return nil
}

// VM is one machine and the process that runs it. All methods may be called
// from several goroutines; none blocks longer than its ctx.
type VM interface {
	Attacher
	Detacher
	DiskGrower
	CPUPlugger
	MemoryPlugger
	Saver
	Pauser
	Snapshotter
	VCPUThreader
	// PCIPath returns where the guest finds an attached device. It fails with
	// errdefs.ErrNotFound for an ID that is not attached, and with
	// errdefs.ErrFailedPrecondition for a disk on the SCSI controller, which is
	// not a PCI device.
	PCIPath(id string) (PCIPath, error)
	// Locate returns where the guest finds any attached device. It fails with
	// errdefs.ErrNotFound for an ID that is not attached.
	Locate(id string) (Location, error)
	// Resume lets a paused machine run.
	Resume(ctx context.Context) error
	// Answer checks that the VMM still answers, and waits for that within ctx.
	Answer(ctx context.Context) error
	// Stop ends the machine immediately, without the guest's cooperation, and
	// waits until its process is gone. It may be called any number of times and
	// after Done; only a process that cannot be killed makes it fail.
	Stop(ctx context.Context) error
	// Done is closed when the machine's process has ended, for any reason, and
	// was reaped.
	Done() <-chan struct{}
	// Err returns why the machine ended: nil while it runs, ErrStopped after
	// Stop, ErrPowerOff after the guest powered itself off, and an error with
	// the cause and the last lines of the VMM's stderr otherwise.
	Err() error
	// PID is the host process id of the machine.
	PID() int
	// ConsoleTail returns the end of what the guest wrote to its console: at
	// most 16 KiB, with control characters replaced. It stays available after
	// Done.
	ConsoleTail() string
}
