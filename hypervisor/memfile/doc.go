// Package memfile reads files that are a machine's memory: sparse, and most of it
// holes. Holes are never read, and never made into data.
package memfile
