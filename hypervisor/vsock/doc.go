// Package vsock is the host's side of one virtual machine's vsock: it dials
// stream connections by port. If the host kernel has vhost-vsock, that carries
// the data; otherwise this package is the device itself, a virtio-vsock (virtio
// 1.2, section 5.10) on hypervisor/vhostuser, inside the process that calls
// Open.
//
// The guest must not open connections. Our device refuses each with a reset.
// With the kernel's device a guest can reach other programs' listeners on the
// host: docs/threat-model.md says what keeps containers from it.
//
// A connection in our device:
//
//	 Dial            RESPONSE          Close             RST, or 10 s
//	------> [dialing] ------> [open] --------> [closing] -----------> [dead]
//	            |                 |                                     ^
//	            |                 | RST, full SHUTDOWN, reset, death    |
//	            |                 +-------------------------------------+
//	            +-------------------------------------------------------+
//	              RST, no answer, ctx ended
//
// A pause of the machine resets connections, too, unless it was announced
// (Transport.Hold). Transport.Detach resets the device and its connections, and
// serves a new device for the next machine.
//
// The two goroutines that belong to the device are the kick loops of its
// queues. The loop of the guest's transmit queue puts payload into the
// connections' buffers and replies into the outbox; it never waits. Writers
// copy directly into the guest's receive buffers, in turn when those are
// scarce, and flush the outbox first. A connection needs no goroutine.
//
// Locks, in the order in which they may nest:
//
//	a queue (Queue.Do)  >  device.mu  >  outbox.mu
//	                    >  conn.mu    >  outbox.mu
//	                    >  line.mu
//
// The host memory that a guest can use is bounded: connections (maxConns), the
// unread bytes of each (its buf_alloc) and replies not yet delivered
// (maxResets).
package vsock
