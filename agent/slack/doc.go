// Package slack keeps the monitor of Go's runtime from taking turns with the
// agent's work.
//
// While any goroutine runs, the monitor (runtime/proc.go, sysmon) sleeps for 20 us
// at a time, which the kernel's usual timer slack makes 70. A guest often has one
// CPU, so each time it interrupts the goroutine that it watches: a timer interrupt,
// two context switches and a timer to program, which the host has to emulate.
// Without KVM that was a fifth of an exec's time; docs/adr/0059 has the figures.
//
// A program that imports this package, and is built with cgo, has a larger timer
// slack (prctl(2), PR_SET_TIMERSLACK) if it is a machine's first process. It is set
// before Go starts, so that all threads inherit it. Go's own timers do not depend on
// it, but the monitor does: while a goroutine blocks in a system call on the only P,
// the others wait up to that long.
//
// Processes that the agent starts have the kernel's usual slack: packages spawn and
// command set it, and this package does for libcontainer's stage.
package slack
