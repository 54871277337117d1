package qemu

import (
	"fmt"
	"os"
	"regexp"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

// maxShareTag is virtio-fs's limit in bytes (virtio 1.2, section 5.11.4).
const maxShareTag = 36

// deviceID is what QEMU accepts as an ID (util/id.c), less the dot.
var deviceID = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,62}$`)

// plan is how a device gets to QEMU: descriptors, what makes something of
// them that a device can stand on, and the device.
type plan struct {
	bus     bus
	files   []passed
	backend *backend // nil for a device that takes its descriptor itself
	device  map[string]any
}

// passed is a descriptor and what QEMU is to know it by: a name, until a
// command takes it, or the number of a set (set is not 0), until it is removed
// from there.
type passed struct {
	name string
	set  int
	file *os.File
}

// backend is a character, network or block device of QEMU's host side.
type backend struct {
	add, remove command
}

// command is a QMP command and its arguments.
type command struct {
	name string
	args map[string]any
}

// remains is what QEMU keeps of the plan when the device is gone.
func (p plan) remains() []command {
	if p.backend == nil {
		return nil
	}
	steps := []command{p.backend.remove}
	for _, f := range p.files {
		if f.set != 0 {
			steps = append(steps, f.take())
		}
	}
	return steps
}

// left is the same of a plan of which it is unknown how far it came.
func (p plan) left() []command {
	var steps []command
	if p.backend != nil {
		steps = append(steps, p.backend.remove)
	}
	return append(steps, closing(p.files)...)
}

// undone takes everything back that comes before a device that was refused.
// A back end has consumed the descriptors; the device may have or not.
func (p plan) undone() []command {
	if p.backend == nil {
		return closing(p.files)
	}
	return p.remains()
}

func closing(files []passed) []command {
	var steps []command
	for _, f := range files {
		steps = append(steps, f.take())
	}
	return steps
}

// give passes the descriptor to QEMU, and take takes it back.
func (f passed) give() command {
	if f.set != 0 {
		return command{"add-fd", map[string]any{"fdset-id": f.set}}
	}
	return command{"getfd", map[string]any{"fdname": f.name}}
}

func (f passed) take() command {
	if f.set != 0 {
		return command{removeFD, map[string]any{"fdset-id": f.set}}
	}
	return command{"closefd", map[string]any{"fdname": f.name}}
}

// checkOpen finds a file that is closed before anything was done with it.
func checkOpen(files []passed) error {
	for _, f := range files {
		raw, err := f.file.SyscallConn()
		if err == nil {
			err = raw.Control(func(uintptr) {})
		}
		if err != nil {
			return fmt.Errorf("use file %s: %w", f.file.Name(), err)
		}
	}
	return nil
}

// planOf makes the plan of a device. set is the number of a descriptor set
// that the plan may use.
func planOf(d hypervisor.Device, set int) (plan, error) {
	if !deviceID.MatchString(d.DeviceID()) {
		return plan{}, fmt.Errorf("device ID %q: %w", d.DeviceID(), errdefs.ErrInvalidArgument)
	}
	switch d := d.(type) {
	case hypervisor.VhostVsock:
		return planVhostVsock(d)
	case hypervisor.VhostUserVsock:
		return planVhostUser(d.ID, d.Socket, map[string]any{"driver": "vhost-user-vsock-pci"})
	case hypervisor.FSShare:
		return planFSShare(d)
	case hypervisor.NIC:
		return planNIC(d)
	case hypervisor.Disk:
		return planDisk(d, set)
	case hypervisor.RNG:
		return planRNG(d, set)
	case hypervisor.Balloon:
		return planBalloon(d), nil
	}
	return plan{}, fmt.Errorf("device kind %T: %w", d, errdefs.ErrNotImplemented)
}

func planVhostVsock(d hypervisor.VhostVsock) (plan, error) {
	if d.File == nil {
		return plan{}, fmt.Errorf("no vhost-vsock file: %w", errdefs.ErrInvalidArgument)
	}
	fd := "fd-" + d.ID
	return plan{files: []passed{{name: fd, file: d.File}}, device: onPodBus(d.ID, map[string]any{
		"driver":    "vhost-vsock-pci",
		"guest-cid": d.CID,
		"vhostfd":   fd,
	})}, nil
}

func planFSShare(d hypervisor.FSShare) (plan, error) {
	if d.Tag == "" || len(d.Tag) > maxShareTag {
		return plan{}, fmt.Errorf("share tag %q: not within 1 and %d bytes: %w", d.Tag, maxShareTag, errdefs.ErrInvalidArgument)
	}
	props := map[string]any{"driver": "vhost-user-fs-pci", "tag": d.Tag}
	if d.QueueSize != 0 {
		if d.QueueSize&(d.QueueSize-1) != 0 {
			return plan{}, fmt.Errorf("queue size %d: not a power of two: %w", d.QueueSize, errdefs.ErrInvalidArgument)
		}
		props["queue-size"] = d.QueueSize
	}
	return planVhostUser(d.ID, d.Socket, props)
}

func planVhostUser(id string, socket *os.File, props map[string]any) (plan, error) {
	if socket == nil {
		return plan{}, fmt.Errorf("no vhost-user socket: %w", errdefs.ErrInvalidArgument)
	}
	fd, chardev := "fd-"+id, "char-"+id
	props["chardev"] = chardev
	return plan{
		files: []passed{{name: fd, file: socket}},
		backend: &backend{
			add:    command{"chardev-add", socketChardev(chardev, fd)},
			remove: command{"chardev-remove", map[string]any{"id": chardev}},
		},
		device: onPodBus(id, props),
	}, nil
}

func onPodBus(id string, props map[string]any) map[string]any {
	props["id"], props["bus"] = id, podBus
	return props
}

// socketChardev is a connected socket, given by the name of its descriptor
// (qapi/char.json, ChardevBackend).
func socketChardev(id, fdName string) map[string]any {
	return map[string]any{
		"id": id,
		"backend": map[string]any{
			"type": "socket",
			"data": map[string]any{
				"addr":   map[string]any{"type": "fd", "data": map[string]any{"str": fdName}},
				"server": false,
			},
		},
	}
}
