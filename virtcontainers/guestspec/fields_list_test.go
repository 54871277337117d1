package guestspec

// fate is what happens to a field of the spec.
type fate string

const (
	// guest: it reaches the guest unchanged, and the guest applies it to the
	// container.
	guest fate = "guest"
	// host: the host does it, or has the guest do it with other values.
	host fate = "host"
	// logged: it is dropped, with a line in the log.
	logged fate = "left out, logged"
	// out: it is silently dropped, because engines set it for the host's
	// kernel, not because a user asked for it.
	out fate = "left out"
	// refused: the container is not made, and the error names the field.
	refused fate = "refused"
)

// field is one row: what happens to the fields below path with those names; no
// names means the field at path itself.
type field struct {
	path, names string
	fate        fate
	why         string
}

// fields are all fields of the OCI runtime specification (specs-go). A field
// that is missing here, as after a new release of the specification, fails
// TestEveryFieldHasAFate.
var fields = []field{
	{"ociVersion", "", guest, ""},
	{"process", "terminal args env cwd noNewPrivileges oomScoreAdj", guest, ""},
	{"process", "commandLine", guest, "of Windows; without effect, as with runc"},
	{"process", "apparmorProfile selinuxLabel", out, "a label of a policy of the host's, which the guest's kernel has not loaded"},
	{"process.consoleSize", "height width", guest, ""},
	{"process.user", "uid gid umask additionalGids", guest, ""},
	{"process.user", "username", guest, "of Windows; without effect, as with runc"},
	{"process.capabilities", "bounding effective inheritable permitted ambient", guest, ""},
	{"process.rlimits", "type hard soft", guest, ""},
	{"process.scheduler", "policy nice priority flags runtime deadline period", guest, "by the guest's scheduler, among the pod's processes"},
	{"process.ioPriority", "class priority", guest, "as above"},
	{"process.execCPUAffinity", "initial final", logged, "numbers of the host's CPUs"},
	{"root", "path", host, "the share's or a disk's place in the guest"},
	{"root", "readonly", guest, ""},
	{"hostname", "", guest, "the first container's is also the pod's; without one it is the host's, as in a new UTS namespace"},
	{"domainname", "", guest, ""},
	{"mounts", "destination type", guest, ""},
	{"mounts", "options", guest, "propagation to the host is left out and logged; on a bind mount, options for a file system are, too"},
	{"mounts", "source", host, "of a bind mount: its place in the guest (volumes.md); refused for a file system on a device or a directory of the host's (ext4, overlay)"},
	{"mounts.uidMappings", "containerID hostID size", host, "mapped on the host; refused for anything but a bind mount"},
	{"mounts.gidMappings", "containerID hostID size", host, "mapped on the host; refused for anything but a bind mount"},
	{"hooks.prestart", "path args env timeout", host, "on the host"},
	{"hooks.createRuntime", "path args env timeout", host, "on the host"},
	{"hooks.createContainer", "path args env timeout", host, "refused with an error: the container's namespaces are in the guest"},
	{"hooks.startContainer", "path args env timeout", host, "as above"},
	{"hooks.poststart", "path args env timeout", host, "on the host"},
	{"hooks.poststop", "path args env timeout", host, "on the host"},
	{"annotations", "", guest, "for guest hooks; the runtime's own keys are read on the host"},
	{"linux.uidMappings", "containerID hostID size", guest, "the guest's ids are the host's"},
	{"linux.gidMappings", "containerID hostID size", guest, "as above"},
	{"linux", "sysctl", guest, "those of the network apply to the whole pod"},
	{"linux.resources.devices", "allow type major minor access", guest, "except numbers of the host's disks"},
	{"linux.resources.memory", "limit reservation swap checkBeforeUpdate", guest, "the limit makes the machine larger, too; with cgroup v2 swap limits the pod on the host, too (host-cgroups.md)"},
	{"linux.resources.memory", "kernel kernelTCP swappiness disableOOMKiller", logged, "not in cgroup v2"},
	{"linux.resources.memory", "useHierarchy", out, "always so in cgroup v2"},
	{"linux.resources.cpu", "shares quota period burst idle", guest, "shares apply to the pod on the host, too; the quota makes the machine larger"},
	{"linux.resources.cpu", "cpus mems", host, "the pod's CPUs and memory nodes (host-cgroups.md)"},
	{"linux.resources.cpu", "realtimeRuntime", logged, "not in cgroup v2"},
	{"linux.resources.cpu", "realtimePeriod", out, "as above; without effect on its own"},
	{"linux.resources.pids", "limit", guest, ""},
	{"linux.resources.blockIO", "weight", guest, ""},
	{"linux.resources.blockIO", "leafWeight", logged, "not in cgroup v2"},
	{"linux.resources.blockIO.weightDevice", "major minor weight leafWeight", logged, "numbers of the host's"},
	{"linux.resources.blockIO.throttleReadBpsDevice", "major minor rate", logged, "numbers of the host's"},
	{"linux.resources.blockIO.throttleWriteBpsDevice", "major minor rate", logged, "numbers of the host's"},
	{"linux.resources.blockIO.throttleReadIOPSDevice", "major minor rate", logged, "numbers of the host's"},
	{"linux.resources.blockIO.throttleWriteIOPSDevice", "major minor rate", logged, "numbers of the host's"},
	{"linux.resources.hugepageLimits", "pageSize limit", guest, "of page sizes that the guest has; one above 0 of another size fails the create"},
	{"linux.resources.network", "classID", logged, "for the host's traffic control"},
	{"linux.resources.network.priorities", "name priority", logged, "as above"},
	{"linux.resources.rdma", "hcaHandles hcaObjects", logged, "a guest has no such devices"},
	{"linux.resources", "unified", guest, "ten keys (guest-settings.md), of them memory.swap.max on the host, too; others are logged"},
	{"linux", "cgroupsPath", host, "the pod's cgroup on the host (host-cgroups.md)"},
	{"linux.namespaces", "type", guest, "PID, mount, user, time; the pod's containers share IPC, and UTS unless one has its own name; each has a cgroup namespace; the host's PID and IPC are refused, or logged with `allow_host_namespaces`; its UTS is copied, logged"},
	{"linux.namespaces", "path", host, "may name another container of the pod; those of other machines, and time, cgroup and mount namespaces, are refused"},
	{"linux.devices", "path type major minor fileMode uid gid", host, "above; a FIFO is made in the guest"},
	{"linux.netDevices", "name", refused, "move links into the pod's network namespace instead"},
	{"linux.seccomp", "defaultAction defaultErrnoRet architectures flags", guest, "with `disable_guest_seccomp = false`; else left out, logged; an empty list of flags is taken for none, which is SPEC_ALLOW"},
	{"linux.seccomp", "listenerPath listenerMetadata", refused, "an agent on the host cannot answer for the guest's kernel; left out with the profile if `disable_guest_seccomp` is true"},
	{"linux.seccomp.syscalls", "names action errnoRet", guest, ""},
	{"linux.seccomp.syscalls.args", "index value valueTwo op", guest, ""},
	{"linux", "rootfsPropagation", guest, "within the guest"},
	{"linux", "maskedPaths readonlyPaths", guest, ""},
	{"linux", "mountLabel", out, "a label of the host's kernel"},
	{"linux.intelRdt", "closID schemata l3CacheSchema memBwSchema enableMonitoring", logged, "the guest has no such hardware"},
	{"linux.memoryPolicy", "mode nodes flags", logged, "numbers of the host's memory nodes"},
	{"linux.personality", "domain flags", guest, "flags are without effect, as with runc"},
	{"linux.timeOffsets", "secs nanosecs", guest, ""},
	{"solaris", "", refused, ""},
	{"windows", "", refused, ""},
	{"vm", "", refused, "configuration.toml and annotations define the machine"},
	{"zos", "", refused, ""},
	{"freebsd", "", refused, ""},
}
