package qemu

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

// Attach implements hypervisor.VM. QEMU's refusal leaves the machine as it
// was, with one exception: of a NIC with several queues, QEMU 7.2 keeps those
// that came before a queue it refuses (net/tap.c, net_init_tap), and the ID
// stays in use there. After any other error it is unknown whether the device
// is there: Detach it, or stop the machine.
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
	if err := checkOpen(p.files); err != nil {
		return err
	}
	if nic, ok := d.(hypervisor.NIC); ok {
		if err := prepareTaps(nic.Taps); err != nil {
			return err
		}
	}
	slot, err := vm.reserve(d.DeviceID())
	if err != nil {
		return err
	}
	p.device["addr"] = fmt.Sprintf("%#x", slot)
	err = vm.plug(ctx, p)
	switch {
	case err == nil:
		vm.settle(d.DeviceID(), p.remains())
	case refused(err):
		vm.unreserve(d.DeviceID())
	default:
		vm.settle(d.DeviceID(), append(p.remains(), closing(p.files)...))
	}
	return err
}

// plug carries a plan out. What was done is undone when QEMU refuses a later
// step; when QEMU does not answer there is nobody to undo it.
func (vm *VM) plug(ctx context.Context, p plan) error {
	for i, f := range p.files {
		if err := vm.mon.GetFD(ctx, f.name, f.file); err != nil {
			vm.undo(ctx, err, closing(p.files[:i]))
			return err
		}
	}
	if p.backend != nil {
		if err := vm.run(ctx, p.backend.add); err != nil {
			vm.undo(ctx, err, closing(p.files))
			return err
		}
	}
	err := vm.mon.Execute(ctx, "device_add", p.device, nil)
	if err != nil {
		vm.undo(ctx, err, p.undone())
	}
	return err
}

func (vm *VM) run(ctx context.Context, c command) error {
	return vm.mon.Execute(ctx, c.name, c.args, nil)
}

// undo takes steps back after cause, if QEMU is there to do so. A descriptor
// that the refused command has consumed is no longer known to QEMU: that
// refusal is expected.
func (vm *VM) undo(ctx context.Context, cause error, steps []command) {
	if !refused(cause) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	for _, step := range steps {
		if err := vm.run(ctx, step); err != nil {
			log.G(ctx).WithField("sandbox", vm.id).WithError(err).Debug("step back after a refused device")
		}
	}
}

// refused tells QEMU's no from a command whose effect is unknown.
func refused(err error) bool {
	var e *qmp.Error
	return errors.As(err, &e)
}
