// Package image finds the image that a user names: in a registry, in an OCI
// layout (a directory or a tar), in the tar that "docker save" writes, or a
// directory that is a root file system. It returns readers of the layers; the
// store unpacks them.
//
// It is the only user of go-containerregistry, which no shim may link.
package image
