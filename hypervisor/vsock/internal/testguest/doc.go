// Command testguest is the init of the virtual machine in which the tests of
// hypervisor/vsock prove the transport with a real driver. It loads the modules
// of its image, serves a few ports, and never runs on a host.
package main
