// Package persist records on disk what must be undone for a pod if its shim is
// killed: the shim's `delete` reads it, in another process, and cleans up. It
// does not serve to restore a pod: a VM's vsock and files end with its shim.
//
// The record is written before what it names is made, so that it is complete in
// whatever phase a shim died:
//
//	<root>/<sandbox>/state.json
//	                 removing     since when what the record names is being removed;
//	                              a removal that fails keeps both
//
// Writes are atomic (a new file, fsync, rename), and the format has a
// version.
package persist
