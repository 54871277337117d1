// Package modprobe is the agent as the kernel's modprobe. A program that
// imports it and is started as ".../modprobe" never gets to its main function.
//
// The kernel runs /sbin/modprobe, which the image links to the agent, when
// somebody asks for what a module may bring: a link type, a table, an address
// family (request_module in kernel/module/kmod.c). The process has no open
// files, an environment of three variables and the guest's first root and
// namespaces; only its exit status is looked at. Several may run at once,
// beside the agent.
//
//	modprobe -q -- NAME
//
// Loaded is what the image lists under that name or alias, with what it needs.
// Most names that a kernel asks for are in no list, so that is answered
// without a word; what should have worked is told in the kernel's log.
//
// It is its own package with few imports because Go initialises packages
// as soon as their imports are: the process does not wait for the rest of the
// agent.
package modprobe
