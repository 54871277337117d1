// Package procmem has what a process has changed of its private mappings of a file:
// its own pages, which no other process can map. They are read and written by system
// calls, and given back by the process itself, which is made to call madvise(2).
//
// The process may be hostile. What it can do is make a call here fail: the kernel
// says what is mapped where, and every wait ends.
package procmem
