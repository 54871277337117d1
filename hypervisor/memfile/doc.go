// Package memfile reads files that hold a machine's memory: sparse, and mostly
// holes. Holes are never read, and stay holes in a copy.
//
// A memory image is the data of a stopped machine's memory files in one file on
// disk, compressed and encrypted: StoreImage writes it, Discard gives the memory
// back to the host, and RestoreImage fills the same files again.
package memfile
