// Package virtcontainers is the domain: a Sandbox is a pod and its virtual
// machine, a Container is one of the pod's, a Process is a container's init
// or an exec. It knows neither containerd nor QEMU: the shim calls it, and it
// calls a hypervisor.Monitor and the guest's agent.
//
// A sandbox boots by a list of named steps, each with its undo (boot.go); the
// same undos, in reverse order, end it.
//
//	          New                     exit of the first container,
//	(nothing) ----> [ready] --------> Stop, or death of VM, agent   ----> [stopped]
//	                        [stopping]  or the share's server
//
// A process:
//
//	           Start                exit event, or
//	[created] --------> [running] -----------------> [stopped] --------> [deleted]
//	    |                           loss of the VM       ^       Delete
//	    +------------------------------------------------+
//	           Kill before Start, or loss of the VM
//
// A running container's init may also be [paused], together with the whole
// container, and resumed.
//
// The order at an exit is fixed (settle.go): output drained; when it is the
// sandbox's own container's, the sandbox torn down; the container's process on
// the host ended; exit recorded, waiters woken, the Observer told. Each process that was created exits
// exactly once: with its real status; with 137 when the sandbox's end killed
// it; with 255 when contact with the guest was lost.
//
// A sandbox that is ready may hibernate (hibernate.go, slept.go, wake.go): its machine is
// paused and its memory on disk, until a call to the guest passes the turnstile. Its
// container may be saved with the machine (checkpoint.go, saving.go), and another
// sandbox may continue from that in place of booting (restore.go).
//
// The machine grows before a container is created or its limits are raised, and
// shrinks, as far as it can, after one has ended or its limits were lowered
// (package sizing); or it has its full size from the start.
//
// A machine starts by booting, from a template (template.go, missing.go, expire.go) or
// as a spare that is adopted (spare.go, refill.go). These have the configuration's
// size; a pod that wants a larger one starts with it and grows (plain.go).
//
// No lock is held across a call to the guest, the monitor or an IO.
package virtcontainers
