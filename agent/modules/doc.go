// Package modules loads the kernel modules of the guest image. It knows the names,
// aliases and dependencies of each, and how to load a file.
//
// Package guest-image makes the list (see there for its format). Package guest
// loads the modules that every pod needs or the host requests, package modprobe
// those that the kernel requests.
//
// Processes that load concurrently share only the kernel, for which loading a
// module twice is a harmless error.
package modules
