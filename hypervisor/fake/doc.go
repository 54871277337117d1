// Package fake is a hypervisor in memory, for the unit tests of the packages
// above: it records what was asked of it, fails where it is told to, and lets
// a test play the guest's and the monitor's part (VM.Die, VM.SetConsole).
//
// It checks the order that hypervisor.VM promises (a machine that is gone
// takes no device), but runs nothing.
package fake
