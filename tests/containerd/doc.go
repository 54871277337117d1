// Package containerd is the integration suite: real containerd, of every
// release that the harness knows, with the runtime that KATABOX_TEST_RUNTIME
// names. Tests that apply to any runtime also run with runc, which validates
// the suite; the rest is for virtual machines only.
//
// Each test has its own pods and ends with the check that nothing of them is
// left on the host. It needs root, and what "make build guest-image containerd"
// makes.
package containerd
