// Package memfile reads files that hold a machine's memory: sparse, and mostly
// holes. Holes are never read, and stay holes in a copy.
package memfile
