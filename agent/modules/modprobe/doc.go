// Package modprobe is the agent as the kernel's modprobe. A program that
// imports it and is started as ".../modprobe" never reaches its main function.
//
// The kernel runs /sbin/modprobe, which the image links to the agent, when a
// process uses what a module may provide: a link type, a table, an address
// family (request_module in kernel/module/kmod.c). The modprobe process has no
// open files, an environment of three variables and the guest's initial root
// and namespaces; only its exit status matters. Several may run concurrently,
// beside the agent.
//
//	modprobe -q -- NAME     the kernel's
//	modprobe NAME [-q]      iptables-legacy's, where the guest's image has it (agent/iptables)
//
// It loads what the image lists under that name or alias, with what that needs.
// Most names that a kernel requests are not in the list, so that is not logged;
// other failures are written to the kernel's log.
//
// It is a separate package with few imports because Go initialises a package as
// soon as its imports are: the process does not wait for all of the agent's.
package modprobe
