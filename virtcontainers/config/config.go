package config

import (
	"cmp"
	"time"
)

// Config is the whole configuration, every value valid. It is plain data that
// belongs to the caller.
type Config struct {
	// Hypervisor is [hypervisor.qemu].
	Hypervisor Hypervisor
	// Agent is [agent.kata].
	Agent Agent
	// Runtime is [runtime].
	Runtime Runtime
	// Factory is [factory].
	Factory Factory
	// Annotations is what pods may change; its keys are in [hypervisor.qemu].
	Annotations Allowed
	// Warnings are what the operator should know but is no error: keys without
	// effect, values that the host cannot provide. One line each.
	Warnings []string
	// Source is the files read, in the order they were merged; empty when
	// there was none and all values are the built-in defaults.
	Source []string
	// Origins says where each value comes from, by the key's full dotted name.
	// A key that is missing has the built-in default.
	Origins map[string]Origin
	// Plain is the configuration before a pod's annotations were applied; nil if
	// none were.
	Plain *Config

	// cpus is the number of the host's CPUs. In a Config that was not loaded it
	// is 0, which stands for the CPUs of this process.
	cpus int
}

// WithoutAnnotations returns the operator's configuration: c itself if a pod's
// annotations were not applied to it.
func (c *Config) WithoutAnnotations() *Config { return cmp.Or(c.Plain, c) }

// Hypervisor is the machine that a sandbox gets when neither annotations nor
// containers ask for more, and the programs that run it.
type Hypervisor struct {
	// Path is the VMM's executable; Kernel and Initrd are what the guest boots.
	// Absolute host paths, never empty, not checked for existence.
	Path, Kernel, Initrd string
	// Firmware is what starts the kernel: an absolute path, or empty for QEMU's
	// default.
	Firmware string
	// MachineType is QEMU's q35 or a versioned pc-q35-*.
	MachineType string
	// MachineAccelerators and CPUFeatures are comma separated additions to
	// the machine and the CPU model, without blanks and without empty items;
	// empty adds nothing.
	MachineAccelerators, CPUFeatures string
	// TranslationMiB bounds TCG's buffer of translated code; 0 is QEMU's own
	// bound.
	TranslationMiB uint64
	// Threading is how TCG runs several CPUs: ThreadingAuto, ThreadingMulti or
	// ThreadingSingle.
	Threading string
	// KernelParams is appended to the guest kernel's command line.
	KernelParams string
	// VCPUs is the number at boot, MaxVCPUs the most after hot-plug: 1 <= VCPUs
	// <= MaxVCPUs <= the host's CPUs.
	VCPUs, MaxVCPUs uint32
	// DefaultVCPUs is VCPUs before rounding up: containers' fractions of a CPU
	// are added first, and the sum is rounded. 0 < DefaultVCPUs <= VCPUs.
	DefaultVCPUs float64
	// MemoryMiB is the memory at boot, at least 256 MiB.
	MemoryMiB uint64
	// MaxMemoryMiB is the most after hot-plug; 0 is the host's memory.
	// MemorySlots is how often memory can be hot-plugged; with VirtioMem it is
	// one device that needs no slots.
	MaxMemoryMiB uint64
	MemorySlots  uint32
	VirtioMem    bool
	// Memory is what the guest's memory is made of.
	Memory Memory
	// EntropySource is the file of the host that the guest's random number
	// generator reads: absolute, not checked for existence.
	EntropySource string
	// DumpDir is where a guest's memory is saved when its kernel panics, in a
	// directory for each sandbox: absolute and clean; empty saves nothing.
	// DumpPaging saves it by the guest's virtual addresses.
	DumpDir    string
	DumpPaging bool
	// ExtraMonitor is the protocol of a second QEMU monitor for debugging:
	// MonitorHMP, MonitorQMP, MonitorQMPPretty or empty for none.
	ExtraMonitor string
	// SharedFS is how the guest sees host directories: SharedFSVirtioFS or
	// SharedFSNone.
	SharedFS string
	// VirtioFS configures that share.
	VirtioFS VirtioFS
	// BlockDriver is the device by which the guest sees disks: BlockSCSI or
	// BlockVirtio.
	BlockDriver string
	// BlockAIO is how QEMU reads and writes them: AIOUring, AIONative or
	// AIOThreads. The host may lack it.
	BlockAIO string
	// BlockCache says how much of them the host caches.
	BlockCache BlockCache
	// BlockLogicalSector and BlockPhysicalSector are what the guest sees as a
	// disk's sector sizes, in bytes: a power of two from 512 to 65536, or 0
	// for the disk's own. If neither is 0, the logical size is not larger than
	// the physical one.
	BlockLogicalSector, BlockPhysicalSector uint32
	// IOThreads and IndepIOThreads determine BlockThreads.
	IOThreads      bool
	IndepIOThreads uint32
	// DisableBlockRootfs mounts root file systems that are block devices on the
	// host and shares them, instead of giving them to the guest as disks.
	DisableBlockRootfs bool
	// DisableVhostNet keeps the data path of NICs out of the host's kernel.
	DisableVhostNet bool
	// RxMaxRate and TxMaxRate limit what each NIC receives and sends, in
	// bit/s; 0 is no limit.
	RxMaxRate, TxMaxRate uint64
	// Seccomp is the value of QEMU's -sandbox option ("on,spawn=deny", "off");
	// never empty.
	Seccomp string
	// Rootless runs each VMM confined, as its own user: one of UIDs ids from
	// FirstUID on, none of which is 0 or above 4294967293.
	Rootless       bool
	FirstUID, UIDs uint32
	// GuestHookPath is a directory in the guest with OCI hooks; empty for none.
	GuestHookPath string
	// Debug logs the VMM's and the guest kernel's messages.
	Debug bool
}

// RootfsAsDisks reports whether root file systems that are block devices or
// images are given to the guest as disks. Without a share there is no other
// way.
func (h Hypervisor) RootfsAsDisks() bool {
	return !h.DisableBlockRootfs || h.SharedFS == SharedFSNone
}

// The values of Hypervisor.SharedFS.
const (
	// SharedFSVirtioFS is virtio-fs, served by the shim or by VirtioFS.Daemon.
	SharedFSVirtioFS = "virtio-fs"
	// SharedFSNone shares nothing: what a container needs is on a disk or is
	// copied.
	SharedFSNone = "none"
)

// VirtioFS configures what serves the host share, and its queue.
type VirtioFS struct {
	// Daemon is the absolute host path of an external daemon. Empty: the shim
	// serves the share.
	Daemon string
	// Cache is how much the guest may cache.
	Cache CacheMode
	// ExtraArgs is appended to the daemon's arguments. No item is empty.
	// Without a daemon they are refused at the boot.
	ExtraArgs []string
	// QueueSize is the request queue's length in descriptors, a power of two
	// from 8 to 1024.
	QueueSize uint16
}

// CacheMode is how much of the host share the guest may cache. The names are
// Kata's; the caller translates them for its daemon.
type CacheMode string

// The cache modes.
const (
	// CacheNever caches nothing: every read goes to the host.
	CacheNever CacheMode = "never"
	// CacheMetadata caches names and attributes, but no file contents.
	CacheMetadata CacheMode = "metadata"
	// CacheAuto caches until a file is closed or a short timeout ends.
	CacheAuto CacheMode = "auto"
	// CacheAlways caches without expiry: for trees that only this guest
	// changes.
	CacheAlways CacheMode = "always"
)

// Agent configures the guest's init process.
type Agent struct {
	// Debug raises the agent's log level to debug.
	Debug bool
	// DebugConsole lets the host's root start processes in the guest itself.
	DebugConsole bool
	// Tracing adds the guest's spans to the pod's traces.
	Tracing bool
	// KernelModules are loaded in the guest before the first container: a
	// module's name, then its parameters, separated by blanks.
	KernelModules []string
	// DialTimeout bounds the wait for the agent's first answer after the
	// guest was started; at least one second.
	DialTimeout time.Duration
	// HealthInterval is the time between two health checks of the agent, 0 for
	// none; HealthTimeout bounds the wait for each, at least one second.
	HealthInterval, HealthTimeout time.Duration
	// KillTimeout is how long a container or an exec may live on after SIGKILL
	// before the host ends it; at least one second.
	KillTimeout time.Duration
}

// Runtime configures the shim itself.
type Runtime struct {
	// Debug raises the shim's log level to debug.
	Debug bool
	// NetworkModel is how the links of a pod's network namespace reach its
	// guest.
	NetworkModel NetworkModel
	// DisableNewNetNS leaves pods without a network: connecting the guest is up
	// to the operator. NetworkModel is then NetworkNone.
	DisableNewNetNS bool
	// SandboxCgroupOnly keeps the shim, the VMM and the share's daemon in the
	// pod's cgroup and charges their use to the pod. Otherwise the overhead
	// beside the guest is not charged to it.
	SandboxCgroupOnly bool
	// PinVCPUs binds each vCPU to one of the pod's CPUs while their numbers are
	// equal.
	PinVCPUs bool
	// StaticSizing starts a guest at the largest size that the engine names for
	// the pod, and never resizes it.
	StaticSizing bool
	// DisableGuestSeccomp ignores containers' seccomp profiles.
	DisableGuestSeccomp bool
	// AllowHostNamespaces gives a container that requests the host's PID or IPC
	// namespace its pod's; otherwise the container is refused.
	AllowHostNamespaces bool
	// PrivilegedHostDisks are glob patterns of the paths of disks of the host that
	// a privileged container gets.
	PrivilegedHostDisks []string
	// CreateContainerTimeout bounds the creation of one container in the
	// guest, its storages included; at least one second. The operator's, without
	// annotations, also bounds its deletion and each change of the pod's network.
	CreateContainerTimeout time.Duration
	// EmptyDirMode is how emptyDir volumes on the host reach the guest:
	// EmptyDirShared or EmptyDirBlock.
	EmptyDirMode string
	// KubeletDir is the directory below which the kubelet keeps pods' volumes:
	// absolute and clean.
	KubeletDir string
	// SandboxBindMounts are directories and files of the host that all of a
	// pod's containers can see: an absolute and clean path, not "/", followed
	// by ":ro", ":rw" or nothing, which means ":ro".
	SandboxBindMounts []string
	// HibernatePath is the directory for the memory of pods that hibernate:
	// absolute and clean, not checked for existence.
	HibernatePath string
	// CheckpointKeyFile is a file with the key of checkpoints; empty leaves them
	// in the clear.
	CheckpointKeyFile string
	// Profiles offers the shim's profiles (pprof) on its management socket.
	Profiles bool
	Tracing  Tracing
}

// Tracing configures the OpenTelemetry traces of a shim.
type Tracing struct {
	// Enabled has traces sent.
	Enabled bool
	// Endpoint is the URL of an OTLP receiver (HTTP, protobuf), with its path.
	// Empty: the environment's OTEL_EXPORTER_OTLP_*, or else the receiver at
	// port 4318 of this host.
	Endpoint string
	// User and Password are for HTTP's basic authentication; without a User
	// there is none.
	User, Password string
}

// Factory configures machines that start as copies of a booted one.
type Factory struct {
	// Template starts machines from a template if one fits.
	Template bool
	// TemplatePath is the directory of templates: absolute, not checked for
	// existence.
	TemplatePath string
	// VMs is how many spare machines are kept for pods to come; 0 is none.
	VMs uint32
}

// The values of Runtime.EmptyDirMode.
const (
	// EmptyDirShared shares the directory like any other volume.
	EmptyDirShared = "shared-fs"
	// EmptyDirBlock makes a file in it and gives it to the guest as a disk.
	EmptyDirBlock = "block-plain"
)

// NetworkModel is how a link of the pod's network namespace is connected to a
// NIC of the guest.
type NetworkModel string

// The network models; the words are Kata's.
const (
	// NetworkTCFilter redirects all frames between the link and a TAP device
	// beside it, by traffic control filters.
	NetworkTCFilter NetworkModel = "tcfilter"
	// NetworkMacVTap puts a macvtap device on the link.
	NetworkMacVTap NetworkModel = "macvtap"
	// NetworkNone makes a TAP device beside the link and connects nothing.
	NetworkNone NetworkModel = "none"
)
