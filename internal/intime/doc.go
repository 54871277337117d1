// Package intime runs calls that may hang with a file system or a disk of the host,
// and stops waiting when a context ends. With a dead NFS or FUSE server stat and
// open hang, and the kernel does not let them be interrupted.
//
// Outlast is for the opposite: what must be finished although its caller waits no longer.
package intime
