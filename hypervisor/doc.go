// Package hypervisor defines what a virtual machine is to the rest of Katabox:
// a bare machine (Spec), devices that are attached to it (Device), and the VM
// that a VMM process runs. It holds types and no behaviour, and nothing
// specific to one VMM; hypervisor/qemu implements it with QEMU, hypervisor/fake
// in memory.
//
//	            Launch                Resume
//	(nothing) ---------> [paused] ------------> [running]
//	                        | ^                   | |
//	                        | +-------------------+ |
//	                        |         Pause         |
//	                        | Stop, or death        | Stop, power-off,
//	                        v                       v  panic, or death
//	                     [gone] <-------------------+
//
// Devices may be attached while the VM is paused or running. Removing one
// (Detacher), or changing the number of CPUs (CPUPlugger) or the memory
// (MemoryPlugger), needs the guest's cooperation, and so a running VM. [gone]
// is final: Done is closed, the VMM process is reaped, and every file passed to it
// is released.
package hypervisor
