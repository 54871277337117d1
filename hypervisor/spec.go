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
	// CPUFeatures is appended to the CPU model verbatim ("pmu=off").
	CPUFeatures string
	// VCPUs run from boot; MaxVCPUs can be there after hot-plug.
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
}
