package hypervisor

// Accel is what executes the guest's instructions.
type Accel string

// The accelerators.
const (
	// AccelKVM runs the guest on the CPU's virtualisation extensions.
	AccelKVM Accel = "kvm"
	// AccelTCG translates the guest's code; it works on every host.
	AccelTCG Accel = "tcg"
)

// MemoryModel is the kind of memory that is plugged into a machine.
type MemoryModel string

// The models.
const (
	// MemoryDIMM plugs memory modules, whole multiples of 128 MiB. They stay.
	MemoryDIMM MemoryModel = "pc-dimm"
	// MemoryVirtio grows and shrinks a virtio-mem device, whole multiples of
	// 2 MiB. The guest needs the driver virtio_mem.
	MemoryVirtio MemoryModel = "virtio-mem"
)

// Spec is the bare machine: everything that must be known before it exists.
// Devices that belong to a pod are not here; they are attached (VM.Attach).
type Spec struct {
	// ID names the machine in logs and in the monitor's process name.
	ID string
	// Path is the monitor's executable.
	Path string
	// MachineType is the board, "q35" by default; Accelerators is appended
	// to it verbatim when not empty ("kernel_irqchip=on").
	MachineType  string
	Accelerators string
	// Accel is chosen by the caller from what the host has.
	Accel Accel
	// TranslationMiB bounds the guest's code as AccelTCG has translated it; 0 is
	// the monitor's own choice. AccelKVM ignores it.
	TranslationMiB uint64
	// CPUFeatures is appended to the CPU model verbatim ("pmu=off").
	CPUFeatures string
	// VCPUs run from boot; MaxVCPUs can be in use later (CPUPlugger).
	VCPUs, MaxVCPUs uint32
	// MemoryMiB is the memory at boot. It is shared with the device back
	// ends outside the monitor process.
	MemoryMiB uint64
	// MaxMemoryMiB is how much there can be after hot-plug (MemoryPlugger);
	// 0 or MemoryMiB is no hot-plug. MemoryModel is what is plugged then; it
	// is MemoryDIMM when empty. MemorySlots is how many times a MemoryDIMM
	// can be plugged.
	MaxMemoryMiB uint64
	MemoryModel  MemoryModel
	MemorySlots  uint32
	// Memory is what all of it is made of.
	Memory MemoryBacking
	// DiskThreads is how many threads of the monitor's are there for disks
	// alone: those on their own bus are divided among them, those on the
	// SCSI controller have one. 0 leaves disks to the monitor's main loop.
	DiskThreads uint32
	// ExtraMonitor is a second way to command the monitor; the zero value is
	// none.
	ExtraMonitor ExtraMonitor
	// PanicDump is where the memory of a guest goes whose kernel panics; the
	// zero value is nowhere.
	PanicDump PanicDump
	// Firmware is the host path of an image that starts the kernel; empty is
	// the monitor's choice. UEFI firmware starts only a bzImage.
	Firmware string
	// Kernel, Initrd are host paths: an ELF or bzImage kernel, and a cpio
	// archive.
	Kernel, Initrd string
	// KernelParams is the kernel's whole command line.
	KernelParams string
	// NetworkNamespace is the absolute path of the network namespace that the
	// monitor's process runs in, entered once, at Launch; empty gives it an empty one of its own. The monitor
	// needs no network: whoever looks for the pod's by the process's id finds
	// it there.
	NetworkNamespace string
	// ConsoleLine, when not nil, gets each line that the guest prints on its
	// console, in order, at most 4 KiB long, with control characters replaced.
	// It must not block.
	ConsoleLine func(line string)
	// Seccomp is the monitor's own sandbox setting, verbatim ("on,spawn=deny");
	// empty leaves it off.
	Seccomp string
	// Jail, when not nil, shuts the monitor in. Otherwise it runs as this process
	// does.
	Jail *Jail
	// Template, when not nil, is what the machine goes on from; it boots
	// nothing then. Its memory must be of the zero MemoryBacking.
	Template *Template
}

// Jail is how a monitor is shut in: as a user of its own without capabilities,
// in a root directory with its program, the files of the Spec and nothing
// else of the host's. Path must then be no script.
type Jail struct {
	// UID and GID are the monitor's. 0 leaves those of this process, without its
	// capabilities. Nobody else should have them, and MemoryBacking.Dir
	// must be theirs to write.
	UID, GID uint32
}

// MemoryBacking is what a machine's memory is made of on the host. The zero
// value is memory without a file, which is taken as the guest uses it.
type MemoryBacking struct {
	// HugePageMiB is the size of the host's huge pages that the memory is
	// made of, in MiB; 0 is none. Such memory is taken before the guest has
	// it. Spec.MemoryMiB must be whole pages, and what is plugged will be.
	HugePageMiB uint64
	// Prealloc takes memory from the host before the guest has it.
	Prealloc bool
	// Dir is the absolute path of a directory for files that are the memory
	// and have no name there; empty is none. Not with HugePageMiB.
	Dir string
	// File is the name in Dir that the memory at boot has all the same; the file
	// is made, and stays. Empty is none.
	File string
}

// MonitorLanguage is what a monitor understands.
type MonitorLanguage string

// The languages of QEMU's monitor (QEMU's docs, "QEMU Monitor" and "QEMU QMP
// Reference Manual").
const (
	MonitorHMP       MonitorLanguage = "hmp"
	MonitorQMP       MonitorLanguage = "qmp"
	MonitorQMPPretty MonitorLanguage = "qmp-pretty"
)

// ExtraMonitor is a socket at which the monitor takes commands from whoever
// connects, one at a time: it owns the machine.
type ExtraMonitor struct {
	Language MonitorLanguage
	// Path is where the monitor makes the socket, absolute and at most 107
	// bytes (unix(7)). Its directory is the caller's, who keeps others out of
	// it and removes what is left of the socket.
	Path string
}

// PanicDump says that the memory of a guest is saved when its kernel panics:
// the machine ends when that is done. The guest needs the driver pvpanic-pci.
type PanicDump struct {
	// Dir is the absolute path of the directory for the file, made if it is
	// not there. Neither is ever removed. Each file is as large as the
	// machine's memory.
	Dir string
	// Paging orders the memory as the guest's kernel sees it and not as the
	// machine does.
	Paging bool
}
