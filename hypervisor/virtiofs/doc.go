// Package virtiofs is a virtio-fs device (virtio 1.2, section 5.11) in this
// process: vhost-user and virtqueues by hypervisor/vhostuser, FUSE's format by
// wire, the files by passthrough, on threads that contain confines.
//
// One thread waits for the driver's notification and serves a request completely.
// Nothing is passed from one thread to another between the notification and the
// reply: in Go that would cost more than most requests. One thread at a time, the
// front, waits; it wakes the others when there is more than it can do (front.go),
// and keeps its P while requests follow each other (linger.go).
//
//	kick eventfd ──epoll──> front: Take ─> wire ─> passthrough ─> Return ──> call eventfd
//
// At most maxThreads requests are being served, and maxRequests taken from the
// queue. A hung file system of the host hangs the threads that use it, so one
// mount's requests get at most half of the threads that the others leave free,
// and beyond that wait for one another (fair.go).
package virtiofs
