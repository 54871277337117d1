// Package qemu runs virtual machines with QEMU: it turns a hypervisor.Spec
// into an argument vector (BuildArgs, a pure function), starts QEMU paused
// with the bare machine, and attaches every device of the pod over QMP.
//
//	        Launch: check, socketpair, start, QMP handshake
//	(nothing) -----------------------------------------> [paused]
//	                                                        | Resume
//	  guest ends by itself: SHUTDOWN event, then exit       v
//	[gone] <-------------------------------------------- [running]
//	  ^  Stop: quit, SIGKILL                                |
//	  |  death: the process is reaped, whatever QMP said    |
//	  +-----------------------------------------------------+
//
// A device is attached by a plan (planOf): descriptors, what QEMU makes of them
// (a character, network or block device), and the device on the pod's bus or, of
// disks, on the SCSI controller there. Detach undoes the plan once the guest
// has ejected the device. CPUs and memory are hot-plugged towards a target size,
// and QEMU is queried for the result. After a command that QEMU has not answered, the
// next need clears a memory module's remains (module.go), and asks QEMU whether a
// device of the machine's own exists (owndevice.go).
//
// Without KVM, QEMU's version decides whether vCPUs run in parallel (threading.go).
//
// Only the end of the process ends the machine; events say why. A QEMU that has
// announced its end, or lost its QMP connection, and does not exit is killed.
//
// The lower layers are hypervisor/child (process) and hypervisor/qemu/qmp
// (protocol). Package virtcontainers decides which devices a pod gets.
package qemu
