// Package vhosttest is a vhost-user front end and a virtio driver in Go, for
// the tests of devices on hypervisor/vhostuser: guest memory in a memfd, split
// rings that the test fills by hand, and the protocol's messages. It shares no
// code with what it tests, and it can misbehave as real front ends and drivers
// do not. Its functions fail the test on unexpected errors.
package vhosttest
