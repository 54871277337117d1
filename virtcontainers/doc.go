// Package virtcontainers is the domain: a Sandbox is a pod and its virtual
// machine, a Container is one of the pod's, a Process is a container's init
// or an exec. It knows neither containerd nor QEMU: the shim calls it, and it
// calls a hypervisor.Monitor and the guest's agent.
//
// A blueprint says what a virtual machine is to be (blueprint.go, keys.go), a machine is
// one that runs (machine.go). A sandbox has a machine and adds what is the pod's. Machines
// without a pod are spares, and those of which templates are made.
//
// A machine and a sandbox start by a list of named steps, each with its undo (plan.go,
// boot.go). Their end runs the undos in reverse order.
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
// The order at an exit is fixed (settle.go):
//
//	drain output > tear down the sandbox > end the stand-in > record > wake waiters > Observer
//	               (its own container's exit)
//
// Each process that was created exits exactly once: with its real status; with 137
// if the sandbox's end killed it; with 255 if the guest was lost.
//
// A ready sandbox may hibernate: its machine is paused and its memory on disk, until a
// call to the guest wakes it. That is its sleeper's (sleeper.go, hibernate.go, wake.go,
// slept.go), whose turnstile every call to the guest passes (turnstile.go). Its
// container may be saved with the machine (checkpoint.go, saving.go). Another
// sandbox may continue from that instead of booting (restore.go).
//
// The machine grows before a container is created or its limits are raised, and
// shrinks, as far as it can, after one has ended or its limits were lowered
// (package sizing). With static sizing it has its full size from the start.
//
// A machine boots, starts from a template (template.go), or is a spare that the sandbox
// adopts (spare.go, adopt.go). Templates and spares have the configuration's size. A larger
// pod starts with that size and grows (plain.go). A pod that runs has missing ones made for
// the next pods (stock.go, order.go, expire.go).
//
// No lock is held across a call to the guest, the monitor or an IO.
package virtcontainers
