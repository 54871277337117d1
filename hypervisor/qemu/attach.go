package qemu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

// maxShareTag is virtio-fs's limit in bytes (virtio 1.2, section 5.11.4).
const maxShareTag = 36

// deviceID is what QEMU accepts as an ID (util/id.c), less the dot.
var deviceID = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,62}$`)

// Attach implements hypervisor.VM. QEMU's refusal leaves the machine as it
// was. After any other error it is unknown whether the device is there: the
// machine should be stopped.
func (vm *VM) Attach(ctx context.Context, d hypervisor.Device) error {
	err := vm.attach(ctx, d)
	if err != nil {
		return vm.explain(ctx, fmt.Sprintf("attach %T %q to virtual machine", d, d.DeviceID()), err)
	}
	return nil
}

func (vm *VM) attach(ctx context.Context, d hypervisor.Device) error {
	p, err := planOf(d)
	if err != nil {
		return err
	}
	slot, err := vm.reserve(d.DeviceID())
	if err != nil {
		return err
	}
	p.device["addr"] = fmt.Sprintf("%#x", slot)
	err = vm.plug(ctx, p)
	if refused(err) {
		vm.unreserve(d.DeviceID())
	}
	return err
}

// plan is how a device gets to QEMU: a descriptor, a character device on it
// if the back end speaks vhost-user, and the device.
type plan struct {
	fdName  string
	file    *os.File
	chardev string // its ID; empty for none
	device  map[string]any
}

func planOf(d hypervisor.Device) (plan, error) {
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
	}
	return plan{}, fmt.Errorf("device kind %T: %w", d, errdefs.ErrNotImplemented)
}

func planVhostVsock(d hypervisor.VhostVsock) (plan, error) {
	if d.File == nil {
		return plan{}, fmt.Errorf("no vhost-vsock file: %w", errdefs.ErrInvalidArgument)
	}
	fd := "fd-" + d.ID
	return plan{fdName: fd, file: d.File, device: onPodBus(d.ID, map[string]any{
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
	props["chardev"] = "char-" + id
	return plan{fdName: "fd-" + id, file: socket, chardev: "char-" + id, device: onPodBus(id, props)}, nil
}

func onPodBus(id string, props map[string]any) map[string]any {
	props["id"], props["bus"] = id, podBus
	return props
}

// plug carries a plan out. What was done is undone when QEMU refuses a later
// step; when QEMU does not answer there is nobody to undo it.
func (vm *VM) plug(ctx context.Context, p plan) error {
	if err := vm.mon.GetFD(ctx, p.fdName, p.file); err != nil {
		return err
	}
	if p.chardev != "" {
		if err := vm.mon.Execute(ctx, "chardev-add", socketChardev(p.chardev, p.fdName), nil); err != nil {
			vm.undo(ctx, err, "closefd", map[string]any{"fdname": p.fdName})
			return err
		}
	}
	err := vm.mon.Execute(ctx, "device_add", p.device, nil)
	if err == nil {
		return nil
	}
	if p.chardev != "" {
		vm.undo(ctx, err, "chardev-remove", map[string]any{"id": p.chardev})
	} else {
		vm.undo(ctx, err, "closefd", map[string]any{"fdname": p.fdName})
	}
	return err
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

// undo takes a step back after cause, if QEMU is there to do so. A
// descriptor that the refused command has consumed is no longer known to
// QEMU: that refusal is expected.
func (vm *VM) undo(ctx context.Context, cause error, command string, args map[string]any) {
	if !refused(cause) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if err := vm.mon.Execute(ctx, command, args, nil); err != nil {
		log.G(ctx).WithField("sandbox", vm.id).WithError(err).Debug("step back after a refused device")
	}
}

// refused tells QEMU's no from a command whose effect is unknown.
func refused(err error) bool {
	var e *qmp.Error
	return errors.As(err, &e)
}

// reserve keeps two attaches from using the same names or the same slot in
// QEMU.
func (vm *VM) reserve(id string) (slot uint8, err error) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if _, ok := vm.devices[id]; ok {
		return 0, fmt.Errorf("device ID %q: %w", id, errdefs.ErrAlreadyExists)
	}
	used := slices.Collect(maps.Values(vm.devices))
	for slot = firstSlot; slices.Contains(used, slot); slot++ {
	}
	if slot > lastSlot {
		return 0, fmt.Errorf("device %q: all %d slots are in use: %w", id, lastSlot, errdefs.ErrResourceExhausted)
	}
	vm.devices[id] = slot
	return slot, nil
}

// PCIPath implements hypervisor.VM.
func (vm *VM) PCIPath(id string) (hypervisor.PCIPath, error) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	slot, ok := vm.devices[id]
	if !ok {
		return "", fmt.Errorf("find device %q of virtual machine %s: %w", id, vm.id, errdefs.ErrNotFound)
	}
	return hypervisor.PCIPath(fmt.Sprintf("%02x/%02x", podBusSlot, slot)), nil
}

func (vm *VM) unreserve(id string) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	delete(vm.devices, id)
}
