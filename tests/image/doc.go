// Package image makes the two container images that the suites run, out of
// what the host has: Debian's busybox-static and a pause program compiled from
// pause/pause.c. No registry is asked. The result is one OCI layout in a tar file,
// the same bytes for the same inputs, ready for "ctr images import".
//
// It knows nothing of containerd; the harness imports what is built here.
package image
