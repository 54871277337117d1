package vhostuser

// Device is a virtio device as this package drives it. Its methods are called
// from Serve's goroutines, with no lock held, and must not wait for the guest.
type Device interface {
	// Features are the device's own feature bits (virtio 1.2, section 5),
	// beside those of this package.
	Features() uint64
	// Config is the device's configuration space, at most 256 bytes.
	Config() []byte
	// Queues are the device's queues, in the order of their indexes. The
	// front end may have further ones that it serves itself.
	Queues() []*Queue
	// Kicked says that the driver may have made chains available. It is
	// called once when a queue begins to run. Calls for one queue do not
	// overlap.
	Kicked(q *Queue)
	// Stopped says that the front end stopped a queue. No Kicked of it is in
	// progress. When Serve returns all queues are stopped too, without this.
	Stopped(q *Queue)
}

// KickWaiter is a Device whose own threads wait for the driver's
// notifications, because the way through a goroutine of this package costs a
// switch of threads for each. Kicked is not called for it.
type KickWaiter interface {
	Device
	// Watch says that the queue runs. fd is the eventfd that the driver's
	// notifications are written to, in non-blocking mode. It stays the
	// caller's, and is there until Unwatch has returned. Chains may be
	// available already, without a notification that is still to come.
	Watch(q *Queue, fd int) error
	// Unwatch ends what Watch began; after it the descriptor is not used.
	// The queue still runs, until it is stopped. It may be called though
	// Watch failed.
	Unwatch(q *Queue)
}
