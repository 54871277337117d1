// Package monitor is the process that stands on the host for one process of a
// guest, below an engine that calls kata-runtime as an OCI runtime. Such an
// engine (conmon, Docker's shim) waits for the pid in the pid file as for a
// child, gives it the container's stdio, and looks at its namespaces.
//
//	create ──Launch──> monitor: inherits stdio or a terminal, waits in the shim
//	   │                  │
//	 ends               ends with the process's exit code (128+n after signal n)
//
// The monitor copies between the inherited stdio and the shim's FIFOs, passes
// on signals and the terminal's size, and is in the namespaces of the
// container's pid. Its command line is the container's. When it is killed, the
// shim kills the process (engine.Policy.WaiterOwnsProcess); when the shim dies,
// it ends.
//
// Run does the same in the calling process, for an exec in the foreground.
package monitor
