// Package oci tests kata-runtime as an OCI runtime, from outside: its commands
// compared with runc's, called as conmon calls them, and by Podman. It needs
// root, what "make build guest-image" makes, a static busybox, and runc or
// podman for the tests that compare with them.
package oci
