// Package monitor is the process that represents a process of a guest on the
// host, for an engine that calls kata-runtime as an OCI runtime. Such an engine
// (conmon, Docker's shim) waits for the pid in the pid file as for a child, gives
// it the container's stdio, and inspects its namespaces.
//
//	create ──Launch──> monitor: inherits stdio or a terminal, waits in the shim
//	   │                  │
//	 ends               ends with the process's exit code (128+n after signal n)
//
// The monitor copies between the inherited stdio and the shim's FIFOs, passes on
// signals and the terminal's size, and is in the namespaces of the container's
// pid, without any capability. It shows the container's command line as its own. When it is killed, the
// shim kills the process (engine.Policy.WaiterOwnsProcess); when the shim dies,
// it ends.
//
// Run does the same in the calling process, for an exec in the foreground.
package monitor
