// Command kata-agent is the guest's PID 1. It is never run on a host.
//
// It starts three times over: as /init of the initramfs, where it copies
// itself to sealed memory and executes that (seal.go); as the agent proper;
// and as "kata-agent init", the half of libcontainer that runs inside a new
// container.
//
// It needs cgo for libcontainer's nsenter, which must run before Go's threads
// exist, and is linked statically:
//
//	CGO_ENABLED=1 go build -trimpath -tags "netgo osusergo seccomp" \
//	  -ldflags "-s -w -buildid= -extldflags -static" ./agent/cmd/kata-agent
//
// If it ends, the kernel panics and the machine with it: the host sees that at
// once, so no failure is hidden.
package main
