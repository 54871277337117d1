// Package memfile copies, seals and saves files that hold a machine's memory. They
// are sparse, mostly holes. Holes are never read, and stay holes in a copy.
//
// A memory image is a file on disk with the content of a stopped machine's memory,
// compressed and encrypted. StoreImage writes it, Memory's Discard returns the
// memory to the host, and RestoreImage fills the same memory again.
package memfile
