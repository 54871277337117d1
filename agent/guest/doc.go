// Package guest turns a freshly booted kernel into a machine that can run
// containers: the root mount, the kernel's file systems, modules, the loopback
// link, resource limits, the clock, the pod's shared namespaces, storages and
// disks, CPUs and memory that come later, and the reaping of orphans that is
// PID 1's duty. Files that the host copies in are package agent/files'.
//
// It knows nothing of containers or of the protocol's services; those are in
// agent/container and agent/service.
//
// A disk (disk.go) is found by its place on the PCI buses, mounted as a storage
// (storage*.go) or given to a container as a device. A storage of huge pages
// takes them out of the guest's memory; the files of a volume are given to a
// group when it is mounted (fsgroup.go). A storage's life:
//
//	Mount ──> mounted ──Unmount──> unmounted ── kernel lets go ──> (gone)
//	                                   └─ 5 s: error, may be called again
//
// The host pulls a disk out once Unmount has succeeded.
//
// Boot runs once, in this order, and any failure ends the agent (a dead init
// ends the machine, which is what the host watches for):
//
//	root mount -> /proc /sys /dev /run cgroup2 -> limits -> modules -> lo
package guest
