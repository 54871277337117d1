// Package vhostuser is the core of Katabox's own virtio back ends: the back-end
// side of the vhost-user protocol, the guest memory it shares, and split
// virtqueues. A device (hypervisor/vsock has the first) implements Device and
// is served to one front end, QEMU, over one connected socket with Serve. The
// device, not this package, interprets the packets in the queues.
//
// The guest may write to any part of a queue at any time, even while it is read.
// So each descriptor is copied before it is checked, every chain ends (it may not
// be longer than its queue), and every address is looked up in the memory table. A
// missing page, for example of a file that was truncated under the mapping, breaks
// the queue that touches it (guarded), and does not end this process.
//
// The guest's memory is mapped here or, if it is private to the front end's
// process, accessed there by system calls (access). Devices see the same Buffers
// in both cases.
//
// A queue's life, as the front end drives it:
//
//	           SET_VRING_KICK and                GET_VRING_BASE, disable,
//	           SET_VRING_ENABLE                  end of the connection
//	[stopped] ------------------> [running] ---------------------> [stopped]
//	                                  |                                ^
//	                                  | malformed ring                 |
//	                                  v                                |
//	                              [broken] ----------------------------+
//
// A device can use only a running queue: either the ring itself, briefly
// (Queue.Do), or it takes chains, works on them without a lock, and returns them
// in any order (Queue.Take, Queue.Return; lent.go). A StateKeeper's state is saved
// and loaded while all queues are stopped (state.go). Event indexes and the
// suppression of notifications are deliberately missing: QEMU's TCG before 8.1
// omits the memory barriers that they need when a machine has one CPU.
package vhostuser
