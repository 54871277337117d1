// Package virtiofs is a virtio-fs device (virtio 1.2, section 5.11) in this
// process: vhost-user and virtqueues by hypervisor/vhostuser, FUSE's format by
// wire, the files by passthrough, on threads that contain shuts in.
//
// The threads wait for the driver's notifications themselves, in one epoll set,
// and serve what they find to its end: from the guest's notification to the
// reply nothing is handed from one thread to another, which in Go costs more than
// most requests do. A thread that leaves nobody waiting starts the next one,
// and one that finds more than it can serve at once wakes another.
//
//	kick eventfd ──epoll──> thread: Take ─> wire ─> passthrough ─> Return ──> call eventfd
//
// At most maxThreads are at work and maxRequests taken from the queue. A file
// system of the host that hangs, hangs the threads that wait for it: one
// mount's requests get at most half of the threads that the others leave free,
// and wait for one another beyond that (pool.go).
package virtiofs
