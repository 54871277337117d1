// Package relay copies the output of a process that writes much, on a thread
// outside Go's scheduler: to a socket, or into the slots of a file (slots.go).
//
// A guest has few CPUs, often one. There, a goroutine that alternates reads and
// writes costs more than the copying itself: each system call of more than 20 us loses its P to
// another thread, which finds nothing to do, and the runtime's monitor stays awake
// for that (runtime/proc.go, retake). Without KVM that took more than a quarter of
// the guest's CPU time; docs/adr/0055 has the figures.
package relay
