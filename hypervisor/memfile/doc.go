// Package memfile reads files that hold a machine's memory: sparse, and mostly
// holes. Holes are never read, and stay holes in a copy.
//
// A memory image is the content of a stopped machine's memory in one file on disk,
// compressed and encrypted: StoreImage writes it, Memory's Discard gives the memory
// back to the host, and RestoreImage fills the same memory again.
package memfile
