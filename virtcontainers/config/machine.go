package config

// Memory is what a guest's memory is made of on the host.
type Memory struct {
	// HugePages uses the host's huge pages. All of the memory is then allocated
	// at start, whatever Prealloc says.
	HugePages bool
	// Prealloc allocates all of it on the host when it is given to the guest.
	Prealloc bool
	// Dir is a directory of the host for files that are the memory: absolute
	// and clean. Empty is anonymous memory. It is empty with HugePages.
	Dir string
	// Reclaim gives memory that the guest has freed back to the host.
	Reclaim bool
}

// The values of Hypervisor.ExtraMonitor; the words are Kata's.
const (
	// MonitorHMP is QEMU's monitor for people.
	MonitorHMP = "hmp"
	// MonitorQMP is for programs, MonitorQMPPretty the same with its answers
	// on many lines.
	MonitorQMP       = "qmp"
	MonitorQMPPretty = "qmp-pretty"
)

// The values of Hypervisor.Threading; but for the first, the words are those of
// QEMU's -accel tcg,thread=.
const (
	// ThreadingAuto leaves the choice to the machine's driver, by QEMU's version.
	ThreadingAuto = "auto"
	// ThreadingMulti has a thread for each CPU.
	ThreadingMulti = "multi"
	// ThreadingSingle has the CPUs take turns in one thread.
	ThreadingSingle = "single"
)

const (
	entropySourcesKey = "hypervisor.qemu.valid_entropy_sources"
	memBackendsKey    = "hypervisor.qemu.valid_file_mem_backends"
)

func entropySources(c *Config) []string { return c.Annotations.EntropySources }
func memBackends(c *Config) []string    { return c.Annotations.MemBackends }

// memoryKeys are about what the memory is made of.
var memoryKeys = []key{
	define("hypervisor.qemu.enable_mem_prealloc", false, boolean,
		func(d *draft) *bool { return &d.Hypervisor.Memory.Prealloc },
		"Allocate all memory of a sandbox on the host at its start, and added memory when it is added. Each GiB takes some "+
			"tenths of a second; that of added memory is within create_container_timeout, and QEMU answers nothing else meanwhile.").
		annotated("config.hypervisor.enable_mem_prealloc"),
	define("hypervisor.qemu.enable_hugepages", false, boolean,
		func(d *draft) *bool { return &d.Hypervisor.Memory.HugePages },
		"Back the guest's memory with the host's huge pages of the default size, all of them at the start. There must be enough free ones "+
			"(vm.nr_hugepages) for default_memory and containers' limits. Not with reclaim_guest_freed_memory.").
		annotated("config.hypervisor.enable_hugepages"),
	define("hypervisor.qemu.file_mem_backend", "", maybePath,
		func(d *draft) *string { return &d.Hypervisor.Memory.Dir },
		"A directory for the unnamed files that back the guest's memory; empty: memory without files. Ignored with "+
			"enable_hugepages.").orDefault().
		annotated("config.hypervisor.file_mem_backend").within(memBackendsKey, memBackends),
	define(memBackendsKey, []any{""}, patterns,
		func(d *draft) *[]string { return &d.Annotations.MemBackends },
		"Which directories the annotation file_mem_backend may name, as glob patterns."),
	define("hypervisor.qemu.reclaim_guest_freed_memory", false, boolean,
		func(d *draft) *bool { return &d.Hypervisor.Memory.Reclaim },
		"Give memory that the guest has freed back to the host, some seconds later, by a balloon device (free page reporting).").
		annotated("config.hypervisor.reclaim_guest_freed_memory"),
}

// deviceKeys are about the board's firmware, devices that every guest has, and
// monitoring.
var deviceKeys = []key{
	define("hypervisor.qemu.firmware", "", maybePath,
		func(d *draft) *string { return &d.Hypervisor.Firmware },
		"Firmware for the guest, such as OVMF.fd; by default QEMU's, which only starts the kernel and is faster. UEFI firmware "+
			"starts a bzImage (vmlinuz), but not an ELF kernel.").orDefault().
		annotated("config.hypervisor.firmware").within(firmwarePathsKey, firmwarePaths),
	define("hypervisor.qemu.entropy_source", "/dev/urandom", absolutePath,
		func(d *draft) *string { return &d.Hypervisor.EntropySource },
		"The host's file that the guest's random number device reads.").orDefault().
		annotated("config.hypervisor.entropy_source").within(entropySourcesKey, entropySources),
	define(entropySourcesKey, []any{"/dev/urandom", "/dev/random", ""}, patterns,
		func(d *draft) *[]string { return &d.Annotations.EntropySources },
		"Which paths the annotation entropy_source may name, as glob patterns."),
	define("hypervisor.qemu.guest_memory_dump_path", "", maybePath,
		func(d *draft) *string { return &d.Hypervisor.DumpDir },
		"A directory for dumps: when a guest's kernel panics, its memory is saved there before the sandbox ends, as "+
			"ID/vmcore-TIME.elf, as large as the memory. Remove dumps yourself: Katabox does not. A dump that takes much longer than "+
			"health_check_timeout is cut short.").orDefault(),
	define("hypervisor.qemu.guest_memory_dump_paging", false, boolean,
		func(d *draft) *bool { return &d.Hypervisor.DumpPaging },
		"Write that dump with the guest's virtual addresses instead of its physical ones."),
	define("hypervisor.qemu.extra_monitor_socket", "", oneOf("", "", MonitorHMP, MonitorQMP, MonitorQMPPretty),
		func(d *draft) *string { return &d.Hypervisor.ExtraMonitor },
		"A second QEMU monitor to debug with, and its language. Its socket is qemu.sock in "+
			"/run/kata-containers/sandboxes/ID-HASH. A process that can connect to it controls the sandbox."),
}
