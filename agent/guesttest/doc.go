// Package guesttest tests the agent where it runs: as PID 1 of a real guest.
// It has tests only.
//
// On the host, TestInGuest builds this package's tests as a static program,
// puts it and a small root file system in front of the guest image's
// initramfs, and boots that with QEMU. In the guest the same program is the
// init: its TestMain boots the machine as the agent does, serves the agent's
// services on local sockets, runs the other tests against them, prints their
// output on the console and powers off.
//
//	go test ./agent/guesttest            # needs root, QEMU, e2fsprogs, build/guest
//
// The guest starts with disks, and is given more of them, a CPU and memory when
// a test prints that it wants them (plug_test.go).
//
// The way over vsock is not covered: the suites in tests/ are.
package guesttest
