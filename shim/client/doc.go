// Package client drives our own shim as an engine does: it starts the daemon
// with the shim's program, connects to the address that "start" wrote into the
// bundle, calls the task API, and calls the program's "delete" after a shim that
// died.
//
//	Start ──> Shim ──> Create, Start, Wait, Kill, Exec, ... ──> Delete ──> Shutdown
//	Connect ──┘          (containerd's task API, v3)
//
// kata-runtime is its only user. Packages oci and standalone interpret the command
// lines.
package client
