// Package persist keeps, on disk, what must be undone for a pod should its
// shim be killed: the shim's `delete` reads it, in another process, and
// cleans up. It is not there to bring a pod back: a VM's vsock and files end
// with its shim.
//
// The record is written before what it names is made, so that whatever phase
// a shim died in, everything it made is known:
//
//	<root>/<sandbox>/state.json
//
// Writes are atomic (a new file, fsync, rename), and the format has a
// version.
package persist
