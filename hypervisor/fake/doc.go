// Package fake is a hypervisor in memory, for unit tests of its callers. It records
// calls, fails on request, and lets a test act as the guest and the VMM (VM.Die,
// VM.SetConsole).
//
// It enforces the order that hypervisor.VM requires (a machine that has ended
// accepts no device), but runs nothing.
package fake
