// Package guesttest tests the agent where it runs: as PID 1 of a real guest.
// It has tests only.
//
// On the host, TestInGuest builds this package's tests as a static program,
// prepends it and a small root file system to the guest image's initramfs, and
// boots that with QEMU. In the guest the same program is the init: its TestMain
// boots the machine as the agent does, serves the agent's services on local
// sockets, runs the other tests against them, prints their output on the
// console and powers off.
//
//	go test ./agent/guesttest            # needs root, QEMU, e2fsprogs, build/guest
//
// The guest starts with disks; more disks, a CPU and memory are hot-plugged
// when a test prints a request for them (plug_test.go).
//
// vsock is not covered here, but by the suites in tests/.
package guesttest
