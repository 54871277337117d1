// Package image builds the two container images that the suites run from what
// the host has: Debian's busybox-static and a pause program compiled from
// pause/pause.c. No registry is used. The result is one OCI layout in a tar
// file, the same bytes for the same inputs, ready for "ctr images import".
//
// It does not depend on containerd; the harness imports the result.
package image
