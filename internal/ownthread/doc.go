// Package ownthread runs code that changes its thread: namespaces, root directory,
// credentials, keyring, a parent that is traced or that children die with. No other
// goroutine may run on such a thread afterwards, so it ends with the code.
//
// It is never the process's main thread, which cannot end: when its goroutine does, the
// Go runtime parks it, and it keeps what it has, such as a copy of all mounts of the
// host. Its namespaces are also what /proc/PID/ns shows.
package ownthread
