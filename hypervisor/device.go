package hypervisor

import (
	"net"
	"os"
)

// Device is something that can be attached to a VM. Each kind is one struct
// of this package; a VM that cannot attach a kind fails with
// errdefs.ErrNotImplemented.
type Device interface {
	// DeviceID names the device within its VM: letters, digits, '-' and '_'.
	DeviceID() string
}

// VhostVsock is a vsock device whose data path is the host kernel's
// vhost-vsock.
type VhostVsock struct {
	ID string
	// CID is the guest's context id, already claimed on File.
	CID uint32
	// File is the open /dev/vhost-vsock. The caller owns it: Attach passes on a
	// duplicate.
	File *os.File
}

// VhostUserVsock is a vsock device whose data path is a vhost-user back end.
type VhostUserVsock struct {
	ID string
	// Socket is the connected front-end side of the vhost-user connection.
	// The caller owns it: Attach passes on a duplicate. The back end must
	// already be serving the other side, because attaching waits for it.
	Socket *os.File
}

// FSShare is a directory tree of the host that a vhost-user virtio-fs back
// end serves.
type FSShare struct {
	ID string
	// Tag is the name under which the guest mounts the share, at most 36
	// bytes (virtio 1.2, section 5.11.4).
	Tag string
	// Socket is as in VhostUserVsock.
	Socket *os.File
	// QueueSize is the request queue's length, a power of two; 0 is the VMM's
	// default.
	QueueSize uint16
}

// NIC is an Ethernet card that is connected to a TAP device of the host.
type NIC struct {
	ID string
	// MAC is the card's address, six bytes.
	MAC net.HardwareAddr
	// Taps are the open queues of one TAP device, one for each pair of the
	// card's queues (at least one), made with a virtio-net header
	// (IFF_VNET_HDR, Linux's Documentation/networking/tuntap.rst). The caller
	// owns them: Attach enables them and passes on duplicates. The TAP device
	// must exist as long as the card: a VMM may not survive its loss.
	Taps []*os.File
	// Vhost are open /dev/vhost-net, as many as Taps, for a data path in the
	// host's kernel; nil leaves the data path to the VMM.
	Vhost []*os.File
}

// DeviceID implements Device.
func (d VhostVsock) DeviceID() string { return d.ID }

// DeviceID implements Device.
func (d VhostUserVsock) DeviceID() string { return d.ID }

// DeviceID implements Device.
func (d FSShare) DeviceID() string { return d.ID }

// DeviceID implements Device.
func (d NIC) DeviceID() string { return d.ID }
