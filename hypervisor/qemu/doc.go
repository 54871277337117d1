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
// has ejected the device. CPUs and memory are plugged towards a wanted size,
// and QEMU is asked for the result.
//
// Without KVM the version decides how the CPUs run (threading.go).
//
// Only the process's end ends the machine; events only say why. A QEMU that
// announced its end, or lost its QMP connection, and does not exit by itself is
// killed.
//
// The lower layers are hypervisor/child (process) and hypervisor/qemu/qmp
// (protocol). Package virtcontainers decides which devices a pod gets.
package qemu
