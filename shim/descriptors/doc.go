// Package descriptors keeps child processes from inheriting the descriptors that
// this process has inherited.
package descriptors
