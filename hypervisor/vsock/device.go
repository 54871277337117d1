package vsock

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/vhostuser"
)

const (
	hostCID = 2
	// guestCID is the address of every guest: one device serves one guest.
	guestCID = 3

	// maxConns bounds the connections of a device, including those that are
	// being opened and closed.
	maxConns = 4096
	// manyConns is the number of connections from which on new ones get the
	// smaller buffer, so that unread bytes are bounded by 256 x 256 KiB + 3840
	// x 32 KiB.
	manyConns   = 256
	maxBufAlloc = 256 << 10
	minBufAlloc = 32 << 10
	// maxPayload is the longest payload sent in one packet, as in Linux
	// (VIRTIO_VSOCK_MAX_PKT_BUF_SIZE).
	maxPayload = 64 << 10
	// transmitBatch is how many packets of the guest are handled before the
	// driver gets its buffers back.
	transmitBatch = 64
)

// The indexes of a device's queues (virtio 1.2, section 5.10.2). The front end
// serves the third one, for events, itself.
const (
	receiveQueue  = 0
	transmitQueue = 1
)

// addrPair identifies a connection by its ports.
type addrPair struct {
	host, guest uint32
}

// device is a virtio-vsock device.
type device struct {
	logger   *log.Entry
	rx, tx   *vhostuser.Queue
	owner    atomic.Pointer[hypervisor.MemoryOwner] // nil for shared memory
	outbox   outbox
	line     line
	warnOnce sync.Once
	held     atomic.Bool // a pause of the machine keeps the connections
	leaving  atomic.Bool // it is being detached: its end is a reset of the connections

	// txChain and sender are used within Do of their queues.
	txChain vhostuser.Chain
	sender  sender

	// mu guards the rest. conns holds the connections that are not dead.
	mu       sync.Mutex
	conns    map[addrPair]*conn
	nextPort uint32
	dialing  int // connections that wait for an answer
	err      error
}

var _ vhostuser.Device = (*device)(nil)

func newDevice(ctx context.Context) *device {
	return &device{
		logger: log.G(ctx).WithField("device", DeviceID),
		rx:     vhostuser.NewQueue(receiveQueue),
		tx:     vhostuser.NewQueue(transmitQueue),
		conns:  make(map[addrPair]*conn),
		// A guest that outlives this process must not mistake new
		// connections for old ones.
		nextPort: rand.Uint32(),
	}
}

// Features implements vhostuser.Device: streams only, so none.
func (d *device) Features() uint64 { return 0 }

// Config implements vhostuser.Device: the guest's CID (virtio 1.2, section 5.10.4).
func (d *device) Config() []byte { return binary.LittleEndian.AppendUint64(nil, guestCID) }

// Queues implements vhostuser.Device.
func (d *device) Queues() []*vhostuser.Queue { return []*vhostuser.Queue{d.rx, d.tx} }

// Owner implements vhostuser.Device.
func (d *device) Owner() vhostuser.Owner {
	if o := d.owner.Load(); o != nil {
		return *o
	}
	return nil
}

// Stopped implements vhostuser.Device. A reset of the driver and a pause of the
// machine look the same here: unless a pause was announced (Transport.Hold),
// the connections end immediately, so that a restarted driver sees nothing from
// before.
func (d *device) Stopped(*vhostuser.Queue) {
	if !d.held.Load() {
		d.reset()
	}
}

// Kicked implements vhostuser.Device.
func (d *device) Kicked(q *vhostuser.Queue) {
	if q.Index() == transmitQueue {
		d.transmit()
		return
	}
	d.flush()
	d.line.next()
}

// transmit handles what the guest sent. It does not wait for receive buffers,
// because the guest may wait for transmit before it provides any.
func (d *device) transmit() {
	for more := true; more; {
		err := d.tx.Do(func(r *vhostuser.Ring) error {
			for range transmitBatch {
				ok, err := r.Pop(&d.txChain)
				if !ok || err != nil {
					more = false
					return err
				}
				d.receive(&d.txChain.Out)
				r.Push(d.txChain.Head, 0)
			}
			return nil
		})
		if err != nil {
			d.queueFailed(err)
			return
		}
		d.flush()
	}
}

// flush sends the pending control packets as far as the guest has buffers. It
// is called with no lock held.
func (d *device) flush() {
	if d.outbox.empty() {
		return
	}
	err := d.rx.Do(func(r *vhostuser.Ring) error {
		d.sender.ring = r
		return d.outbox.flush(&d.sender)
	})
	if err != nil {
		d.queueFailed(err)
	}
}

// queueFailed ends the connections when a ring is broken: nothing passes
// through it until the driver resets it.
func (d *device) queueFailed(err error) {
	if !errors.Is(err, vhostuser.ErrBroken) {
		return
	}
	// A guest can do this repeatedly, and must not fill the log.
	d.warnOnce.Do(func() {
		d.logger.WithError(err).Warn("guest's vsock ring is malformed; its connections end")
	})
	d.reset()
}

// reset ends all connections that the guest has seen, without telling it.
func (d *device) reset() {
	for _, c := range d.snapshot() {
		c.transportReset()
	}
	d.outbox.clear()
}

// shut ends the device permanently: connections and all calls fail with err.
// Only the first call counts.
func (d *device) shut(err error) {
	d.mu.Lock()
	if d.err != nil {
		d.mu.Unlock()
		return
	}
	d.err = err
	d.mu.Unlock()
	if d.leaving.Load() {
		d.reset()
	}
	for _, c := range d.snapshot() {
		c.end(err, err)
	}
}
