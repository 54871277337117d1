// Package monitor is the process that represents a guest's process on the host, for
// an engine that calls kata-runtime as an OCI runtime. Such an engine (conmon,
// Docker's shim) waits for the pid in the pid file as for a child, passes it the
// container's stdio, and inspects its namespaces.
//
//	create ──Launch──> monitor: inherits stdio or a terminal, waits in the shim
//	   │                  │
//	 ends               ends with the process's exit code (128+n after signal n)
//
// The monitor copies between the inherited stdio and the shim's FIFOs, and passes on
// signals and the terminal's size. It is in the namespaces of the container's pid,
// without any capability, and its command line is the container's. When it is
// killed, the shim kills the process (engine.Policy.WaiterOwnsProcess); when the
// shim dies, the monitor ends. The output of a process that a signal has ended waits a
// bounded time for its reader (drain.go, impatience.go).
//
// Run does the same in the calling process, for an exec in the foreground.
package monitor
