// Package oci implements an OCI runtime's commands (create, start, state, kill,
// delete and those that runc adds) with our shim. Each container has a directory
// below the runtime's root. It is the shim's bundle, and has a copy of the spec,
// the shim's files and this package's record.
//
//	<root>/<id>/config.json   the spec; root.path absolute
//	            record.json   the engine's arguments, and the monitor's identity
//	            origin        a link to the engine's bundle, which hooks get
//	            address, shim.pid, shim.exit, log    the shim's
//	            io-*          FIFOs, while a process is being made
//	            exec-*.pid    the monitor of an exec (notes.go)
//
// The pid that engines get is that of a monitor (package monitor). Containers
// whose annotations put them into one pod (Podman's, CRI-O's) share one shim, as
// with any engine. Package command has the flags.
package oci
