package config

import (
	"slices"
	"time"
)

// KernelKey and InitrdKey name the guest's files; a Config's Origins has them if
// a file or an annotation has set them.
const (
	KernelKey = "hypervisor.qemu.kernel"
	InitrdKey = "hypervisor.qemu.initrd"
)

const (
	// minMemoryMiB is Kata's minimum for a guest's memory.
	minMemoryMiB = 256
	// maxMemoryMiB is 16 TiB: beyond any host, and far from overflowing when
	// it is counted in bytes.
	maxMemoryMiB = 16 << 20
	// maxMemorySlots is QEMU's ACPI_MAX_RAM_SLOTS.
	maxMemorySlots = 256
	// Below minTranslationMiB a guest's boot is slower. maxTranslationMiB is
	// QEMU's MAX_CODE_GEN_BUFFER_SIZE.
	minTranslationMiB, maxTranslationMiB = 16, 2048

	minQueueSize = 8
	// maxQueueSize is QEMU's VIRTQUEUE_MAX_SIZE.
	maxQueueSize = 1024

	defaultHypervisor = "/usr/bin/qemu-system-x86_64"

	// defaultSeccomp allows the system calls that QEMU makes once it has
	// started.
	defaultSeccomp = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
	// defaultFirstUID is the first id of a range that systemd's
	// docs/UIDS-GIDS.md lists as unused.
	defaultFirstUID = 0x70000000
	defaultUIDs     = 1 << 16
	// maxUID excludes 4294967295, which chown(2) takes as "unchanged", and
	// 4294967294, the overflow id.
	maxUID  = 1<<32 - 3
	maxUIDs = 1 << 24
)

// keys is every key that has an effect, in the order of configuration.toml.
var keys = slices.Concat(qemuKeys, memoryKeys, deviceKeys, virtioFSKeys, blockKeys, networkKeys, annotationKeys, agentKeys, agentTracingKeys,
	runtimeKeys, volumeKeys, tracingKeys, factoryKeys)

var qemuKeys = []key{
	define("hypervisor.qemu.path", defaultHypervisor, absolutePath,
		func(d *draft) *string { return &d.Hypervisor.Path },
		"The QEMU executable.").orDefault().
		annotated("config.hypervisor.path").within(hypervisorPathsKey, hypervisorPaths),
	define(KernelKey, "/usr/share/kata-containers/vmlinux", absolutePath,
		func(d *draft) *string { return &d.Hypervisor.Kernel },
		"The guest's kernel. An uncompressed ELF boots faster than a bzImage. If this is not set, ../share/kata-containers/vmlinux from "+
			"the shim's directory is preferred to the default.").orDefault().
		annotated("config.hypervisor.kernel").within(kernelPathsKey, kernelPaths),
	define(InitrdKey, "/usr/share/kata-containers/initrd.img", absolutePath,
		func(d *draft) *string { return &d.Hypervisor.Initrd },
		"The guest's initramfs; the agent in it is the guest's init. If this is not set, ../share/kata-containers/initrd.img from the "+
			"shim's directory is preferred to the default.").orDefault().
		annotated("config.hypervisor.initrd").within(initrdPathsKey, initrdPaths),
	define("hypervisor.qemu.machine_type", "q35", machineType,
		func(d *draft) *string { return &d.Hypervisor.MachineType },
		"The board: q35, or one of its versions to keep the guest's hardware as it is when QEMU is upgraded.").orDefault().
		annotated("config.hypervisor.machine_type"),
	define("hypervisor.qemu.machine_accelerators", "", commaList,
		func(d *draft) *string { return &d.Hypervisor.MachineAccelerators },
		"Additions to the machine's options, separated by commas, such as kernel_irqchip=split.").
		annotated("config.hypervisor.machine_accelerators").checked(checkMachineOptions),
	define("hypervisor.qemu.cpu_features", "", commaList,
		func(d *draft) *string { return &d.Hypervisor.CPUFeatures },
		"Additions to the CPU model, separated by commas, such as pmu=off.").
		annotated("config.hypervisor.cpu_features").checked(checkCPUFeatures),
	define("hypervisor.qemu.tcg_tb_size", int64(0), translationBuffer,
		func(d *draft) *uint64 { return &d.Hypervisor.TranslationMiB },
		"Without KVM: the size in MiB of QEMU's buffer for the guest's translated code; 0 is QEMU's default, 1024. A full "+
			"buffer is emptied, and code still in use is translated again: with 64 a sandbox takes some 45 MiB less and an "+
			"exec costs the same CPU time; with 32 an exec takes three times as long."),
	define("hypervisor.qemu.tcg_thread", ThreadingAuto, oneOf("", ThreadingAuto, ThreadingMulti, ThreadingSingle),
		func(d *draft) *string { return &d.Hypervisor.Threading },
		"Without KVM: with multi a sandbox's vCPUs run in parallel, with single they take turns on one CPU of the host. "+
			"auto is single with QEMU older than 8.1, with which a guest whose vCPUs run in parallel may hang; otherwise it is multi, with "+
			"which that is very rare.").orDefault(),
	define("hypervisor.qemu.kernel_params", "", text,
		func(d *draft) *string { return &d.Hypervisor.KernelParams },
		"Appended to the guest kernel's command line, which may have at most 2047 bytes, including the parameters that every guest has.").
		annotated("config.hypervisor.kernel_params").adds(),
	define("hypervisor.qemu.default_vcpus", int64(1), cpuCount,
		func(d *draft) *float64 { return &d.vcpus },
		"The vCPUs of a new sandbox. A fraction is rounded up once, after the containers' needs are added. A negative number means all CPUs of "+
			"the host, and so does a number above that.").orDefault().
		annotated("config.hypervisor.default_vcpus").
		forked("sandbox_cpu", "a number of vCPUs, at least 0.5 (a fraction is rounded up)", decodeSandboxCPU),
	define("hypervisor.qemu.default_maxvcpus", int64(0),
		integer[uint32]("an integer number of vCPUs, 0 for all host CPUs", 0, maxUint32),
		func(d *draft) *uint32 { return &d.maxVCPUs },
		"The most vCPUs a sandbox can grow to; 0 means all CPUs of the host, which is also the maximum. These are the online CPUs, even "+
			"if the engine may use only some of them: then set this to the number of those. "+
			"Each possible vCPU costs the guest a little memory and time at boot.").
		annotated("config.hypervisor.default_max_vcpus"),
	define("hypervisor.qemu.default_memory", int64(2048),
		integer[uint64]("an integer number of MiB, at least 256 and at most 16777216", minMemoryMiB, maxMemoryMiB),
		func(d *draft) *uint64 { return &d.Hypervisor.MemoryMiB },
		"The memory of a new sandbox in MiB, at least 256. It is reduced if the pod's limit on the host has no room for it "+
			"(docs/host-cgroups.md).").
		annotated("config.hypervisor.default_memory").
		forked("sandbox_mem", "bytes, or a number with K, M, G or T, at least 256M and at most 16T", decodeSandboxMemory),
	define("hypervisor.qemu.default_maxmemory", int64(0),
		integer[uint64]("an integer number of MiB, at most 16777216, or 0 for the host's memory", 0, maxMemoryMiB),
		func(d *draft) *uint64 { return &d.Hypervisor.MaxMemoryMiB },
		"The most memory a sandbox can grow to in MiB, as its containers' limits ask for more; 0 means the host's, rounded down by less "+
			"than a 64th. "+
			"With a value up to default_memory the sandbox does not grow."),
	define("hypervisor.qemu.memory_slots", int64(10),
		integer[uint32]("an integer from 1 to 256, or 0 for the default", 1, maxMemorySlots),
		func(d *draft) *uint32 { return &d.Hypervisor.MemorySlots },
		"How many times memory can be added to a sandbox. The share's daemon may support fewer additions (virtiofsd: about seven). "+
			"Ignored with enable_virtio_mem.").orDefault().
		annotated("config.hypervisor.memory_slots"),
	define("hypervisor.qemu.enable_virtio_mem", false, boolean,
		func(d *draft) *bool { return &d.Hypervisor.VirtioMem },
		"Add memory to a sandbox by virtio-mem, which can also remove it when containers need less. Otherwise memory modules "+
			"are plugged, which cannot be removed.").
		annotated("config.hypervisor.enable_virtio_mem"),
	define("hypervisor.qemu.seccompsandbox", defaultSeccomp, text,
		func(d *draft) *string { return &d.Hypervisor.Seccomp },
		"QEMU's own seccomp filter; off for none, as a QEMU that was built without seccomp needs.").orDefault(),
	define("hypervisor.qemu.rootless", true, boolean,
		func(d *draft) *bool { return &d.Hypervisor.Rootless },
		"Run each QEMU as a dedicated user, without capabilities, in a root directory that has only its program and the "+
			"guest's kernel. false runs it as root with the host's files, as Kata Containers does by default. An annotation can only say true.").
		annotated("config.hypervisor.rootless").checked(checkRootless),
	define("hypervisor.qemu.rootless_first_uid", int64(defaultFirstUID),
		integer[uint32]("a user id of the host, from 1 to 4294967293", 1, maxUID),
		func(d *draft) *uint32 { return &d.Hypervisor.FirstUID },
		"The first of the user ids (and group ids) that QEMUs run as. Nothing else may use these ids; systemd leaves "+
			"1879048192 to 2147483647 unused.").orDefault(),
	define("hypervisor.qemu.rootless_uids", int64(defaultUIDs),
		integer[uint32]("a number of user ids, from 1 to 16777216", 1, maxUIDs),
		func(d *draft) *uint32 { return &d.Hypervisor.UIDs },
		"How many such ids there are. Each running sandbox has one; further sandboxes are refused.").orDefault(),
	define("hypervisor.qemu.guest_hook_path", "", guestPath,
		func(d *draft) *string { return &d.Hypervisor.GuestHookPath },
		"A directory of the guest image with OCI hooks to run in the guest for every container: the executable files in its "+
			"folders prestart, poststart and poststop, sorted by name. Each may take 10 seconds. Empty for none.").
		annotated("config.hypervisor.guest_hook_path"),
	define("hypervisor.qemu.enable_debug", false, boolean,
		func(d *draft) *bool { return &d.Hypervisor.Debug },
		"Log the output of QEMU and of the guest's kernel, the kernel's with source=console. The guest boots more slowly."),
}

var virtioFSKeys = []key{
	define("hypervisor.qemu.shared_fs", SharedFSVirtioFS,
		oneOf(`"virtio-fs" or "none"; there is no other shared file system`, SharedFSVirtioFS, SharedFSNone),
		func(d *draft) *string { return &d.Hypervisor.SharedFS },
		"How the guest sees directories of the host: virtio-fs, or none. With none, what a container needs comes as a disk "+
			"or is copied into the guest once.").orDefault().
		annotated("config.hypervisor.shared_fs"),
	define("hypervisor.qemu.virtio_fs_daemon", "", maybeAbsolute,
		func(d *draft) *string { return &d.Hypervisor.VirtioFS.Daemon },
		"What serves the share. Empty: the shim itself, without a further process. Otherwise the path of a virtio-fs daemon: QEMU's "+
			"(part of QEMU 7 and earlier: /usr/lib/qemu/virtiofsd) or the Rust virtiofsd.").
		annotated("config.hypervisor.virtio_fs_daemon").within(virtioFSDaemonPathsKey, virtioFSDaemonPaths),
	define("hypervisor.qemu.virtio_fs_cache", string(CacheAuto),
		oneOf("", CacheNever, CacheMetadata, CacheAuto, CacheAlways),
		func(d *draft) *CacheMode { return &d.Hypervisor.VirtioFS.Cache },
		"How much the guest caches of the host's files: never, metadata (names and attributes only), "+
			"auto (until a file is closed), or always (only for files that nothing else changes).").orDefault().
		annotated("config.hypervisor.virtio_fs_cache"),
	define("hypervisor.qemu.virtio_fs_extra_args", []any{}, arguments,
		func(d *draft) *[]string { return &d.Hypervisor.VirtioFS.ExtraArgs },
		"Further arguments for the virtio-fs daemon; refused if virtio_fs_daemon is empty.").
		annotated("config.hypervisor.virtio_fs_extra_args").
		decoded("a JSON list of arguments, none empty", decodeJSONList).adds().checked(checkDaemonArguments),
	define("hypervisor.qemu.virtio_fs_queue_size", int64(maxQueueSize), queueSize,
		func(d *draft) *uint16 { return &d.Hypervisor.VirtioFS.QueueSize },
		"The length of the virtio-fs request queue: a power of two from 8 to 1024.").orDefault(),
}

var networkKeys = []key{
	define("hypervisor.qemu.disable_vhost_net", false, boolean,
		func(d *draft) *bool { return &d.Hypervisor.DisableVhostNet },
		"Let QEMU move the packets of the guest's network cards, even where the host's kernel (vhost-net) could.").
		annotated("config.hypervisor.disable_vhost_net"),
	define("hypervisor.qemu.rx_rate_limiter_max_rate", int64(0), bitRate,
		func(d *draft) *uint64 { return &d.Hypervisor.RxMaxRate },
		"How many bits a second each network card of a guest may receive; 0 is no limit.").
		annotated("config.hypervisor.rx_rate_limiter_max_rate"),
	define("hypervisor.qemu.tx_rate_limiter_max_rate", int64(0), bitRate,
		func(d *draft) *uint64 { return &d.Hypervisor.TxMaxRate },
		"How many bits a second each network card of a guest may send; 0 is no limit.").
		annotated("config.hypervisor.tx_rate_limiter_max_rate"),
}

var agentKeys = []key{
	define("agent.kata.enable_debug", false, boolean,
		func(d *draft) *bool { return &d.Agent.Debug },
		"Log the agent's debug messages."),
	define("agent.kata.debug_console_enabled", false, boolean,
		func(d *draft) *bool { return &d.Agent.DebugConsole },
		"Let the host's root run commands in the guest itself (kata-runtime debug)."),
	define("agent.kata.kernel_modules", []any{}, modules,
		func(d *draft) *[]string { return &d.Agent.KernelModules },
		`Modules to load in the guest, each with its parameters: "e1000e EEE=1".`).
		annotated("config.agent.kernel_modules").
		decoded(`"module parameter=value ..." with ";" between modules`, decodeModules),
	define("agent.kata.dial_timeout", int64(45), seconds,
		func(d *draft) *time.Duration { return &d.Agent.DialTimeout },
		"How many seconds the agent of a new guest has to answer. A guest that dies earlier is noticed immediately. "+
			"The creation of a pod's first container has its boot in it: create_container_timeout bounds both.").orDefault(),
	define("agent.kata.health_check_interval", int64(5), interval,
		func(d *draft) *time.Duration { return &d.Agent.HealthInterval },
		"Seconds between two health checks of the agent; 0 turns them off. "+
			"A guest that dies is noticed immediately without it: it is for guests that hang."),
	define("agent.kata.health_check_timeout", int64(30), seconds,
		func(d *draft) *time.Duration { return &d.Agent.HealthTimeout },
		"Seconds the agent may take to answer a health check before its sandbox is ended.").orDefault(),
	define("agent.kata.kill_timeout", int64(10), seconds,
		func(d *draft) *time.Duration { return &d.Agent.KillTimeout },
		"How many seconds a container or an exec may survive SIGKILL; without KVM six times as many. After that it counts "+
			"as killed (137), and a guest that still runs the container, or does not answer, is ended.").orDefault(),
}

var runtimeKeys = []key{
	define("runtime.enable_debug", false, boolean,
		func(d *draft) *bool { return &d.Runtime.Debug },
		"Log the shim's debug messages."),
	define("runtime.internetworking_model", string(NetworkTCFilter),
		oneOf("", NetworkTCFilter, NetworkMacVTap, NetworkNone),
		func(d *draft) *NetworkModel { return &d.Runtime.NetworkModel },
		"How the links of the pod's network namespace reach the guest: tcfilter (a TAP device beside each link, all frames "+
			"redirected by traffic control), macvtap (a macvtap device on each link), or none (a TAP device beside each "+
			"link, connected to nothing).").orDefault().
		annotated("config.runtime.internetworking_model"),
	define("runtime.disable_new_netns", false, boolean,
		func(d *draft) *bool { return &d.Runtime.DisableNewNetNS },
		"Ignore pods' network namespaces: the guests get no network card. Requires internetworking_model = "+`"none".`).
		annotated("config.runtime.disable_new_netns"),
	define("runtime.sandbox_cgroup_only", false, boolean,
		func(d *draft) *bool { return &d.Runtime.SandboxCgroupOnly },
		"Keep the shim, QEMU and virtiofsd in the pod's cgroup on the host, with all they use: the pod's limits must leave "+
			"room for them (the runtime class's overhead). Otherwise the pod is charged for its guest, and the rest is charged to "+
			"/kata_overhead, which has its own wide limits. See docs/host-cgroups.md.").
		annotated("config.runtime.sandbox_cgroup_only"),
	define("runtime.enable_vcpus_pinning", false, boolean,
		func(d *draft) *bool { return &d.Runtime.PinVCPUs },
		"Bind each vCPU to one CPU of the host, if there are as many vCPUs as CPUs in the cpusets of the pod's containers (or, without "+
			"a cpuset, as CPUs that the VM may run on). If the numbers differ, each vCPU runs on all of these. See docs/host-cgroups.md.").
		annotated("enable_vcpus_pinning"),
	define("runtime.static_sandbox_resource_mgmt", false, boolean,
		func(d *draft) *bool { return &d.Runtime.StaticSizing },
		"Size the guest once, at its start: default_vcpus and default_memory plus what the engine says that the pod's containers may use "+
			"(containerd's annotations io.kubernetes.cri.sandbox-cpu-quota, -cpu-period, -cpu-shares and sandbox-memory, CRI-O's "+
			"io.kubernetes.cri-o.PodLinuxResources, or without a pause container the pod's configuration), and the limits of the "+
			"sandbox's own container. The guest then never grows or shrinks."),
	define("runtime.disable_guest_seccomp", true, boolean,
		func(d *draft) *bool { return &d.Runtime.DisableGuestSeccomp },
		"Do not apply containers' seccomp profiles: in the guest their processes may then make every system call that the "+
			"guest's kernel has. The boundary to the host is the virtual machine either way; with false the profiles also "+
			"protect the guest's kernel from the containers of its pod.").
		annotated("config.runtime.disable_guest_seccomp"),
	define("runtime.allow_host_namespaces", false, boolean,
		func(d *draft) *bool { return &d.Runtime.AllowHostNamespaces },
		"What happens if a container asks for the host's PID or IPC namespace (--pid=host, hostPID, hostIPC), which a virtual machine "+
			"cannot share. With true it gets its pod's namespace and a warning is logged, as with Kata Containers; with false it is refused."),
	define("runtime.create_container_timeout", int64(60), seconds,
		func(d *draft) *time.Duration { return &d.Runtime.CreateContainerTimeout },
		"How many seconds the creation of a container may take, and also its deletion in the guest. If a deletion takes longer, the "+
			"guest is ended. An annotation changes only the time for creations.").orDefault().
		annotated("config.runtime.create_container_timeout").
		decoded("an integer number of seconds, at most 86400, 0 for the default", decodeCreateTimeout),
	define("runtime.hibernate_path", "/var/lib/kata-containers/hibernation", cleanPath,
		func(d *draft) *string { return &d.Runtime.HibernatePath },
		"The directory for the guest's memory while a pod hibernates (kata-runtime hibernate). It must be on a disk with enough room, and is "+
			"made if it does not exist. The files have no names and are encrypted. See docs/hibernation.md.").orDefault(),
	define("runtime.checkpoint_key_file", "", maybePath,
		func(d *draft) *string { return &d.Runtime.CheckpointKeyFile },
		"A file of the host with a key of at least 32 random bytes. Checkpoints of sandboxes (ctr task checkpoint) are encrypted with it, "+
			"and only such checkpoints are restored. Without a key they are not encrypted. See docs/checkpoint.md."),
	define("runtime.enable_pprof", false, boolean,
		func(d *draft) *bool { return &d.Runtime.Profiles },
		"Offer the profiles of the pod's shim on its management socket, at /debug/pprof/. See docs/observability.md.").
		annotated("config.runtime.enable_pprof"),
}
