// Package intime calls what may hang with a file system or a disk of the host: a
// server of NFS or FUSE that is gone answers neither a stat nor an open, and the
// kernel lets nothing interrupt them.
package intime
