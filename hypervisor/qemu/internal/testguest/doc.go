// Command testguest is the init of the virtual machine in which the tests of
// hypervisor/qemu hot-plug devices with real drivers. It loads the drivers,
// prints each interface, disk, CPU and block of memory that it gets or loses,
// reads and writes the disks, brings CPUs and memory online, echoes on a vsock
// port, and never runs on a host.
package main
