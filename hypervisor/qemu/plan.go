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

// deviceID matches what QEMU accepts as an ID (util/id.c), except the dot.
var deviceID = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,62}$`)

// plan is how a device gets to QEMU: descriptors, the back end that uses them,
// and the device.
type plan struct {
	bus     bus
	files   []passed
	backend *backend // nil if the device takes the descriptors itself
	device  map[string]any
}

// passed is a descriptor and how QEMU refers to it: by a name, until a command
// takes it, or by the number of a set (set is not 0), until it is removed from
// there.
type passed struct {
	name string
	set  int
	file *os.File
}

// backend is a character, network or block device on QEMU's host side.
type backend struct {
	add, remove command
}

// command is a QMP command and its arguments.
type command struct {
	name string
	args map[string]any
}

// remains returns the commands that remove what QEMU keeps of the plan when the
// device is gone.
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

// left returns the same for a plan that was carried out to an unknown point.
func (p plan) left() []command {
	var steps []command
	if p.backend != nil {
		steps = append(steps, p.backend.remove)
	}
	return append(steps, closing(p.files)...)
}

// undone returns the commands that undo everything before a refused device. A
// back end has consumed the descriptors; the device may or may not have.
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

// give passes the descriptor to QEMU, and take removes it again.
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

// checkOpen refuses a closed file before anything is done.
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

// planOf makes the plan for a device. set is the number of a descriptor set
// that the plan may use.
func planOf(d hypervisor.Device, set int) (plan, error) {
	if !deviceID.MatchString(d.DeviceID()) {
		return plan{}, fmt.Errorf("device ID %q: %w", d.DeviceID(), errdefs.ErrInvalidArgument)
	}
	switch d := d.(type) {
	case hypervisor.VhostVsock:
		return planVhostVsock(d)
	case hypervisor.VhostUserVsock:
		return planVhostUser(d.ID, d.Socket, map[string]any{"driver": ModelVhostUserSock})
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
		"driver":    ModelVsock,
		"guest-cid": d.CID,
		"vhostfd":   fd,
	})}, nil
}

func planFSShare(d hypervisor.FSShare) (plan, error) {
	if d.Tag == "" || len(d.Tag) > maxShareTag {
		return plan{}, fmt.Errorf("share tag %q: not within 1 and %d bytes: %w", d.Tag, maxShareTag, errdefs.ErrInvalidArgument)
	}
	props := map[string]any{"driver": ModelShare, "tag": d.Tag}
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

// socketChardev returns a chardev for a connected socket, given the name of its
// descriptor (qapi/char.json, ChardevBackend).
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
