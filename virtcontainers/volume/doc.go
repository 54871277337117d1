// Package volume decides how each of a container's volumes gets into the guest:
// through the share, as a copy, as a disk, or not at all because it is memory
// that the guest makes itself. Kubernetes tells little of a volume to a
// runtime: what kind it is shows in its path below the kubelet's directory.
package volume
