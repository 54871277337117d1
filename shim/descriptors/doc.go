// Package descriptors keeps files that this process has inherited from the processes
// that it starts.
package descriptors
