// Package debug runs processes in the guest itself, beside its containers, for the
// host's root who looks for an error: a shell, or one command. The agent serves
// the port only where the host's configuration has debug_console_enabled.
//
//	connection ── DebugOpen ──> start ── DebugOpened ──> DebugInput, DebugOutput ... exited
//
// A process has the agent's rights, root directory and namespaces. Its connection's
// end kills it, and those of its session that use the terminal get SIGHUP.
package debug
