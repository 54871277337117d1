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

// Threading is how AccelTCG runs a machine's CPUs.
type Threading string

// The ways. The empty value is ThreadingAuto.
const (
	// ThreadingAuto is ThreadingMulti with a VMM in which CPUs that run in
	// parallel almost never miss what others write into code, and
	// ThreadingSingle with others.
	ThreadingAuto Threading = "auto"
	// ThreadingMulti runs each CPU in a thread.
	ThreadingMulti Threading = "multi"
	// ThreadingSingle has the CPUs take turns in one thread: together they are as
	// fast as one, and miss no write.
	ThreadingSingle Threading = "single"
)

// MemoryModel is the kind of memory that is hot-plugged into a machine.
type MemoryModel string

// The models.
const (
	// MemoryDIMM plugs memory modules, in multiples of MemoryBlockMiB. They cannot
	// be unplugged.
	MemoryDIMM MemoryModel = "pc-dimm"
	// MemoryVirtio grows and shrinks a virtio-mem device, in multiples of 2
	// MiB. The guest needs the driver virtio_mem.
	MemoryVirtio MemoryModel = "virtio-mem"
)

// Spec is the bare machine: everything that must be known before it exists.
// A pod's devices are not part of it; they are attached (VM.Attach).
type Spec struct {
	// ID names the machine in logs and in the VMM's process name.
	ID string
	// Path is the VMM's executable.
	Path string
	// MachineType is the board, "q35" by default; Accelerators is appended
	// to it verbatim when not empty ("kernel_irqchip=on").
	MachineType  string
	Accelerators string
	// Accel is chosen by the caller from what the host has.
	Accel Accel
	// TranslationMiB bounds AccelTCG's buffer of translated code; 0 is the
	// VMM's default. AccelKVM ignores it.
	TranslationMiB uint64
	// Threading is how AccelTCG runs the CPUs. AccelKVM ignores it.
	Threading Threading
	// CPUFeatures is appended to the CPU model verbatim ("pmu=off").
	CPUFeatures string
	// VCPUs is the number at boot, MaxVCPUs the most after hot-plug
	// (CPUPlugger).
	VCPUs, MaxVCPUs uint32
	// MemoryMiB is the memory at boot. It is shared with the device back ends
	// outside the VMM process.
	MemoryMiB uint64
	// MaxMemoryMiB is the most after hot-plug (MemoryPlugger); 0 or MemoryMiB
	// means no hot-plug. MemoryModel is what is plugged; empty is MemoryDIMM.
	// MemorySlots is how many times a MemoryDIMM can be plugged.
	MaxMemoryMiB uint64
	MemoryModel  MemoryModel
	MemorySlots  uint32
	// Memory is what the machine's memory is made of.
	Memory MemoryBacking
	// DiskThreads is how many of the VMM's threads serve only disks: virtio-blk
	// disks are divided among them, the SCSI controller's disks share one. With
	// 0 the VMM's main loop serves disks.
	DiskThreads uint32
	// ExtraMonitor is a second command interface of the VMM; the zero value is
	// none.
	ExtraMonitor ExtraMonitor
	// PanicDump is where a guest's memory is saved when its kernel panics; the
	// zero value saves nothing.
	PanicDump PanicDump
	// Firmware is the host path of an image that starts the kernel; empty is
	// the VMM's default. UEFI firmware starts only a bzImage.
	Firmware string
	// Kernel, Initrd are host paths: an ELF or bzImage kernel, and a cpio
	// archive.
	Kernel, Initrd string
	// KernelParams is the kernel's whole command line.
	KernelParams string
	// NetworkNamespace is the absolute path of the network namespace in which
	// the VMM process runs, entered once, at Launch; if empty, the process gets
	// its own empty one. The VMM needs no network: programs that look up the
	// pod's namespace by this process's id find it there.
	NetworkNamespace string
	// ConsoleLine, if not nil, gets each line that the guest prints on its
	// console, in order, at most 4 KiB long, with control characters replaced.
	// It must not block.
	ConsoleLine func(line string)
	// Seccomp is the VMM's own sandbox option, verbatim ("on,spawn=deny");
	// empty disables it.
	Seccomp string
	// Jail, if not nil, confines the VMM. Otherwise it runs with this process's
	// user and root directory.
	Jail *Jail
	// Template, if not nil, is what the machine continues from; it does not
	// boot then. Its Memory must be the zero MemoryBacking.
	Template *Template
	// Awaits, if not nil, is the layout of the saved machine that this one
	// becomes (Snapshotter). It does not boot, it has the layout's memory and CPUs,
	// and devices with the layout's IDs get its places. Memory must be the zero
	// MemoryBacking, and Template nil.
	Awaits *Layout
}

// Jail confines a VMM: it runs as a dedicated user without capabilities, in a
// root directory with its program, the files of the Spec and nothing else of
// the host. Path must then not be a script.
type Jail struct {
	// UID and GID are the VMM's. 0 keeps those of this process, without its
	// capabilities. No other process should have them, and MemoryBacking.Dir
	// must be writable for them.
	UID, GID uint32
}

// MemoryBacking is what a machine's memory is made of on the host. The zero
// value is anonymous memory, allocated as the guest uses it.
type MemoryBacking struct {
	// HugePageMiB is the size of the host's huge pages that the memory is
	// made of, in MiB; 0 is none. Such memory is allocated before the guest
	// gets it. Spec.MemoryMiB must be a multiple of it, and plugged memory will
	// be.
	HugePageMiB uint64
	// Prealloc allocates memory on the host before the guest gets it.
	Prealloc bool
	// Dir is the absolute path of a directory for unnamed files that are the
	// memory; empty is none. Not with HugePageMiB.
	Dir string
	// File gives the boot memory's file a name in Dir; the file is made, and
	// stays. Empty is no name.
	File string
}

// MonitorLanguage is the protocol of an ExtraMonitor.
type MonitorLanguage string

// The protocols of QEMU's monitor (QEMU's docs, "QEMU Monitor" and "QEMU QMP
// Reference Manual").
const (
	MonitorHMP       MonitorLanguage = "hmp"
	MonitorQMP       MonitorLanguage = "qmp"
	MonitorQMPPretty MonitorLanguage = "qmp-pretty"
)

// ExtraMonitor is a socket on which the VMM takes commands from any client, one
// at a time. A client has full control of the machine.
type ExtraMonitor struct {
	Language MonitorLanguage
	// Path is where the VMM makes the socket, absolute and at most 107 bytes
	// (unix(7)). The caller owns its directory, must not give others access to
	// it, and removes what is left of the socket.
	Path string
}

// PanicDump saves a guest's memory when its kernel panics; after that the
// machine ends. The guest needs the driver pvpanic-pci.
type PanicDump struct {
	// Dir is the absolute path of the directory for the file, made if it does
	// not exist. Neither is ever removed. Each file is as large as the
	// machine's memory.
	Dir string
	// Paging saves the memory by the guest kernel's virtual addresses instead
	// of physical ones.
	Paging bool
}
