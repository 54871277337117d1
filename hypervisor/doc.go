// Package hypervisor says what a virtual machine is to the rest of Katabox:
// a bare machine (Spec), devices that are attached to it (Device), and the
// VM that a monitor process runs. It holds types and no behaviour, and no
// word of any one monitor; hypervisor/qemu runs these with QEMU,
// hypervisor/fake in memory.
//
//	            Launch                Resume
//	(nothing) ---------> [paused] ------------> [running]
//	                        |                       |
//	                        | Stop, or death        | Stop, power-off,
//	                        v                       v  panic, or death
//	                     [gone] <-------------------+
//
// Devices may be attached while the VM is paused or running. To take one out
// again (Detacher), or to change the number of CPUs (CPUPlugger) or the memory
// (MemoryPlugger), needs the guest, and so a VM that runs. [gone] is final:
// Done is closed, the monitor process is reaped, and every file it was given
// is released.
package hypervisor
