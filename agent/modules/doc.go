// Package modules loads the kernel modules of the guest image: which there
// are, by which names the kernel asks for them, what each one needs, and how
// a file becomes a module.
//
// The list is made by guest-image (see there for its format). When something
// is loaded is not decided here: package guest loads what every pod needs and
// what the host asks for, package modprobe what the kernel asks for.
//
// Processes that load at the same time share nothing but the kernel, for which
// loading a module twice is an error of no consequence.
package modules
