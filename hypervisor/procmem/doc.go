// Package procmem accesses the pages of a private file mapping that a process has
// changed, which no other process can map. It reads and writes them by system
// calls (process_vm_readv(2), process_vm_writev(2)). To free them it makes the
// process itself call madvise(2), by ptrace(2).
//
// The process may be hostile. All that it can do is make a call here fail: the
// kernel says what is mapped where, and every wait is bounded.
package procmem
