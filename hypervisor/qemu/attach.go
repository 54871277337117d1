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
	p, err := planOf(d, vm.newSet())
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
	if p.bus == scsiBus {
		if err := vm.needController(ctx); err != nil {
			return fmt.Errorf("attach SCSI controller: %w", err)
		}
	}
	return vm.place(ctx, d.DeviceID(), p)
}

// place finds a place for a device and carries its plan out.
func (vm *VM) place(ctx context.Context, id string, p plan) error {
	at, err := vm.reserve(id, p.bus)
	if err != nil {
		return err
	}
	p.bus.put(p.device, at)
	vm.onThread(p.device, at)
	err = vm.plug(ctx, p)
	switch {
	case err == nil:
		vm.settle(id, p.remains())
	case refused(err):
		vm.unreserve(id)
	default:
		vm.settle(id, p.left())
	}
	return err
}

// plug carries a plan out. What was done is undone when QEMU refuses a later
// step; when QEMU does not answer there is nobody to undo it.
func (vm *VM) plug(ctx context.Context, p plan) error {
	for i, f := range p.files {
		give := f.give()
		if err := vm.mon.ExecuteWithFile(ctx, give.name, give.args, nil, f.file); err != nil {
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

// undo takes steps back after cause, if QEMU is there to do so. A descriptor
// that the refused command has consumed is no longer known to QEMU: that
// refusal is expected.
func (vm *VM) undo(ctx context.Context, cause error, steps []command) {
	if !refused(cause) {
		return
	}
	vm.repeatLater(steps)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	vm.clean(ctx, steps)
}

// clean tries each of the steps and leaves it at that.
func (vm *VM) clean(ctx context.Context, steps []command) {
	for _, step := range steps {
		if err := vm.run(ctx, step); err != nil {
			log.G(ctx).WithField("sandbox", vm.id).WithError(err).Debug("QEMU refused a device, and undoing its back end failed")
		}
	}
}

// refused tells QEMU's no from a command whose effect is unknown.
func refused(err error) bool {
	var e *qmp.Error
	return errors.As(err, &e)
}
