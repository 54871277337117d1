// Package persist records on disk what must be undone for a pod if its shim is
// killed: the shim's `delete` reads it, in another process, and cleans up. It
// does not serve to restore a pod: a VM's vsock and files end with its shim.
//
// The record is written before the objects that it names are made, so that it is
// complete whenever the shim dies:
//
//	<root>/<sandbox>/state.json
//	                 removing     when the removal of what the record names began;
//	                              a removal that fails keeps both files
//
// Writes are atomic (a new file, fsync, rename), and the format has a
// version.
package persist
