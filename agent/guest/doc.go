// Package guest turns a freshly booted kernel into a machine that can run
// containers: the root mount, the kernel's file systems, modules, the loopback
// link, resource limits (threads.go, netlimits.go, shared.go, overcommit.go) and other
// sysctls (protected.go), the clock, the pod's shared namespaces, storages and disks,
// hot-plugged CPUs and memory, and reaping orphans, which is PID 1's duty. Package
// agent/files handles files that the host copies in.
//
// It knows nothing of containers or of the protocol's services; those are in
// agent/container and agent/service.
//
// A disk (disk.go) is found by its PCI path, and mounted as a storage
// (storage*.go) or given to a container as a device. A storage of huge pages
// reserves them from the guest's memory; a volume's files are given to a group
// when it is mounted (fsgroup.go). A storage's life:
//
//	Mount ──> mounted ──Unmount──> unmounted ── kernel frees it ──> (gone)
//	                                   └─ 5 s: error, may be called again
//
// The host unplugs a disk once Unmount has succeeded.
//
// Boot runs once, in this order, and any failure ends the agent (a dead init
// ends the machine, which the host notices):
//
//	root mount -> /proc /sys /dev /run cgroup2 -> limits -> modules -> lo
package guest
