// Package vsock is the host's side of one virtual machine's vsock: it dials
// stream connections by port. Where the host kernel has vhost-vsock that
// carries the data; elsewhere this package is the device itself, a virtio-vsock
// (virtio 1.2, section 5.10) on hypervisor/vhostuser, inside the process that
// calls Open.
//
// The guest opens no connections. Our device refuses each with a reset. With
// the kernel's a guest reaches what other programs of the host listen on:
// docs/threat-model.md says what keeps containers from it.
//
// One connection, as our device sees it:
//
//	 Dial            RESPONSE          Close             RST, or 10 s
//	------> [dialing] ------> [open] --------> [closing] -----------> [dead]
//	            |                 |                                     ^
//	            |                 | RST, full SHUTDOWN, reset, death    |
//	            |                 +-------------------------------------+
//	            +-------------------------------------------------------+
//	              RST, no answer, ctx ended
//
// The two goroutines that belong to the device are the kick loops of its
// queues. The one for the guest's transmit queue puts payload into the
// connections' buffers and notes replies in the outbox; it never waits. Writers
// copy straight into the guest's receive buffers, in turn when those are
// scarce, and flush the outbox before. A connection costs no goroutine.
//
// Locks, in the order in which they may nest:
//
//	a queue (Queue.Do)  >  device.mu  >  outbox.mu
//	                    >  conn.mu    >  outbox.mu
//	                    >  line.mu
//
// What the guest can make the host hold is bounded: connections (maxConns), the
// unread bytes of each (its buf_alloc) and replies not yet delivered
// (maxResets).
package vsock
