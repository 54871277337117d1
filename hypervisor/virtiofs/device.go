package virtiofs

import (
	"sync/atomic"

	"github.com/katabox/katabox/hypervisor/vhostuser"
)

// The queues (virtio 1.2, section 5.11.2): forgets and interrupts use the
// first, everything else the second. The notification queue is not offered.
const (
	priorityQueue = iota
	requestQueue
	queueCount
)

// device implements vhostuser.Device. QEMU itself provides the configuration
// space, with the tag.
type device struct {
	queues []*vhostuser.Queue
	by     atomic.Pointer[server]
	state  state
}

// server is what serves the device. It changes only before the front end has
// sent its first request.
type server struct {
	pool  *pool
	owner vhostuser.Owner // nil for shared memory
}

var (
	_ vhostuser.KickWaiter  = (*device)(nil)
	_ vhostuser.StateKeeper = (*device)(nil)
)

func newDevice() *device {
	return &device{queues: []*vhostuser.Queue{vhostuser.NewQueue(priorityQueue), vhostuser.NewQueue(requestQueue)}}
}

// Features implements vhostuser.Device.
func (d *device) Features() uint64 { return 0 }

// Config implements vhostuser.Device.
func (d *device) Config() []byte { return nil }

// Queues implements vhostuser.Device.
func (d *device) Queues() []*vhostuser.Queue { return d.queues }

// Owner implements vhostuser.Device.
func (d *device) Owner() vhostuser.Owner { return d.by.Load().owner }

// Stopped implements vhostuser.Device.
func (d *device) Stopped(*vhostuser.Queue) {}

// Kicked implements vhostuser.Device; it is not called.
func (d *device) Kicked(*vhostuser.Queue) {}

// Watch implements vhostuser.KickWaiter.
func (d *device) Watch(q *vhostuser.Queue, fd int) error {
	if err := d.state.usable(); err != nil {
		return err
	}
	return d.by.Load().pool.watch(q.Index(), fd)
}

// Unwatch implements vhostuser.KickWaiter.
func (d *device) Unwatch(q *vhostuser.Queue) { d.by.Load().pool.unwatch(q.Index()) }
