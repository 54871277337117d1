// Command kata-agent is the guest's PID 1. It is never run on a host.
//
// Started as "kata-agent init" it is the half of libcontainer that runs
// inside a new container (agent/container/inside); otherwise it is the agent.
//
// It needs cgo for libcontainer's nsenter, which must run before Go's threads
// exist, and is linked statically:
//
//	CGO_ENABLED=1 go build -trimpath -tags "netgo osusergo seccomp no_grpc" \
//	  -ldflags "-s -w -buildid= -extldflags -static" ./agent/cmd/kata-agent
//
// If it ends, the kernel panics and the machine ends, which the host detects
// immediately.
package main
