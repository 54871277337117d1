// Command testguest is the init of the virtual machine in which
// hypervisor/vsock is tested with a real driver. It loads the modules of its
// image, serves a few ports, and never runs on a host.
package main
