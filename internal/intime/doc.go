// Package intime runs calls that may hang with a file system or a disk of the host,
// and stops waiting when a context ends. With a dead NFS or FUSE server stat and
// open hang, and the kernel does not let them be interrupted.
package intime
