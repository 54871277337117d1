// Package guest turns a freshly booted kernel into a machine that can run
// containers: the root mount, the kernel's file systems, modules, the loopback
// link, resource limits, the clock, the pod's shared namespaces and storages,
// and the reaping of orphans that is PID 1's duty.
//
// It knows nothing of containers or of the protocol's services; those are in
// agent/container and agent/service.
//
// Boot runs once, in this order, and any failure ends the agent (a dead init
// ends the machine, which is what the host watches for):
//
//	root mount -> /proc /sys /dev /run cgroup2 -> limits -> modules -> lo
package guest
