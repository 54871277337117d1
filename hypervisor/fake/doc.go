// Package fake is a hypervisor in memory, for the unit tests of the packages
// above: it records calls, fails where it is told to, and lets a test act as
// the guest and the VMM (VM.Die, VM.SetConsole).
//
// It enforces the order that hypervisor.VM promises (a machine that is gone
// accepts no device), but runs nothing.
package fake
