// Package modules loads the kernel modules of the guest image: it knows which
// there are, by which names the kernel requests them, what each one needs, and
// how a file is loaded.
//
// The list is made by guest-image (see there for its format). Its users decide
// when to load: package guest loads what every pod needs and what the host
// requests, package modprobe what the kernel requests.
//
// Processes that load concurrently share only the kernel, for which loading a
// module twice is a harmless error.
package modules
