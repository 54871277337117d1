// Package vhostuser is the core of Katabox's own virtio back ends: the back-end
// side of the vhost-user protocol, the guest memory it shares, and split
// virtqueues. A device (hypervisor/vsock has the first) implements Device and
// is served to one front end, QEMU, over one connected socket with Serve. What
// the packets in the queues mean is the device's business, not this package's.
//
// Everything a queue holds is written by the guest, at any time, also while it
// is read. So each descriptor is copied before it is judged, every chain ends
// (a driver may not build one longer than its queue), and every address is
// looked up in the memory table. A page that is not there, as of a file that was
// truncated under the mapping, breaks the queue that touches it (guarded) and
// does not end this process.
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
// Only a running queue lets its device in, either for a short time with the
// ring itself (Queue.Do), or to take chains, work on them outside of any lock,
// and return them in any order (Queue.Take, Queue.Return; lent.go). Deliberately missing are
// event indexes and the suppression of notifications: QEMU's TCG before 8.1
// leaves out the memory barriers they need when a machine has one CPU.
package vhostuser
