package vhostuser

import (
	"context"
	"io"
)

// Device is a virtio device as this package drives it. Its methods are called
// from Serve's goroutines, with no lock held, and must not wait for the guest.
type Device interface {
	// Features returns the device's own feature bits (virtio 1.2, section 5),
	// in addition to this package's.
	Features() uint64
	// Config returns the device's configuration space, at most 256 bytes.
	Config() []byte
	// Queues returns the device's queues, in the order of their indexes. The
	// front end may have others that it serves itself.
	Queues() []*Queue
	// Owner returns the process in whose memory the guest's is, if the machine
	// does not share it; nil if it does. It is asked for each memory table.
	Owner() Owner
	// Kicked is called when the driver may have made chains available, and once
	// when a queue begins to run. Calls for one queue do not overlap.
	Kicked(q *Queue)
	// Stopped is called when the front end has stopped a queue. No Kicked for
	// it is in progress. When Serve returns, all queues are stopped too,
	// without this call.
	Stopped(q *Queue)
}

// KickWaiter is a Device whose own threads wait for the driver's notifications,
// because a goroutine of this package would cost a thread switch for each.
// Kicked is not called for it.
type KickWaiter interface {
	Device
	// Watch is called when the queue begins to run. fd is the eventfd for the
	// driver's notifications, in non-blocking mode. The caller owns it, and
	// keeps it open until Unwatch has returned. Chains may already be available
	// without another notification.
	Watch(q *Queue, fd int) error
	// Unwatch undoes Watch; afterwards the descriptor must not be used. The
	// queue runs on until it is stopped. Unwatch may be called even if Watch
	// failed.
	Unwatch(q *Queue)
}

// StateKeeper is a Device whose state QEMU saves along with the machine's, and
// loads into another such device (vhost-user.rst, "Migrating back-end state").
// The machine must be stopped before its migration begins: what the device
// writes to guest memory is not logged.
//
// While SaveState or LoadState is called no queue runs and no chain is taken,
// and only one of them is called at a time. Both return soon after ctx has
// ended. An error fails the front end's migration; the device is served on.
type StateKeeper interface {
	Device
	// SaveState writes the state to w, at most 256 MiB. What it writes is
	// complete only if it returns nil.
	SaveState(ctx context.Context, w io.Writer) error
	// LoadState replaces the state by what r has, up to its end. The bytes may
	// be forged.
	LoadState(ctx context.Context, r io.Reader) error
	// StateMoved is called at the end of each transfer, and for one that was
	// refused, with the reason why it failed, or nil.
	StateMoved(err error)
}
