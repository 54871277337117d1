// Command testguest is the init of the virtual machine in which the tests of
// hypervisor/qemu see devices come and go with a real driver. It loads the
// drivers, prints each interface, disk, CPU and block of memory that it gets
// or loses, reads and writes the disks, brings CPUs and memory online, gives
// back what comes to a vsock port, and never runs on a host.
package main
