// Package virtiofs is a virtio-fs device (virtio 1.2, section 5.11) in this
// process: vhost-user and virtqueues by hypervisor/vhostuser, FUSE's format by
// wire, the files by passthrough, on threads that contain shuts in.
//
// A thread waits for the driver's notifications itself and serves what it finds
// to its end: from the guest's notification to the reply nothing is handed from
// one thread to another, which in Go costs more than most requests do. It is
// one thread at a time, the front; the others are called when there is more than
// it can do (front.go), and it keeps its processor while requests follow each
// other (linger.go).
//
//	kick eventfd ──epoll──> front: Take ─> wire ─> passthrough ─> Return ──> call eventfd
//
// At most maxThreads are at work and maxRequests taken from the queue. A file
// system of the host that hangs, hangs the threads that wait for it: one
// mount's requests get at most half of the threads that the others leave free,
// and wait for one another beyond that (fair.go).
package virtiofs
