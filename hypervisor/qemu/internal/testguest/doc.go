// Command testguest is the init of the virtual machine in which the tests of
// hypervisor/qemu see devices come and go with a real driver. It loads the
// drivers of network cards, prints each interface that it gets or loses, and
// never runs on a host.
package main
