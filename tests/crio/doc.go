// Package crio runs pods under a real CRI-O, by crictl: once for each way to
// call Katabox (the shim, and kata-runtime as an OCI runtime) and once with
// runc, on a private host (package host). What differs from runc must be in the
// list of known differences. One test installs Katabox on that host, as
// kata-runtime install does on a node.
//
// "make test-crio" builds CRI-O from the Go module proxy first.
package crio
