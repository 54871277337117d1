// Package debug runs a shell or a command in the guest itself, beside its
// containers, for the host's root. The agent serves the port only if the host's
// configuration has debug_console_enabled.
//
//	connection ── DebugOpen ──> start ── DebugOpened ──> DebugInput, DebugOutput ... exited
//
// A process has the agent's privileges, root directory and namespaces. It is killed
// when its connection ends; processes of its session on the terminal get SIGHUP.
package debug
