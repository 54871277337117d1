package qemu

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

// Attach implements hypervisor.VM. If QEMU refuses, the machine is unchanged,
// with one exception: if QEMU 7.2 refuses a queue of a NIC with several, it
// keeps the earlier ones (net/tap.c, net_init_tap), and the ID stays in use in
// QEMU. After any other error it is unknown whether the device is attached:
// Detach it, or stop the machine.
func (vm *VM) Attach(ctx context.Context, d hypervisor.Device) error {
	err := vm.attach(ctx, d)
	if err != nil {
		return vm.explain(ctx, fmt.Sprintf("attach %s %q to virtual machine", kindOf(d), d.DeviceID()), err)
	}
	return nil
}

// kindOf names a device's kind in errors.
func kindOf(d hypervisor.Device) string {
	return strings.TrimPrefix(fmt.Sprintf("%T", d), "hypervisor.")
}

func (vm *VM) attach(ctx context.Context, d hypervisor.Device) error {
	p, err := planOf(d, vm.newSet())
	if err != nil {
		return err
	}
	if err := checkOpen(p.files); err != nil {
		return err
	}
	if _, ok := d.(hypervisor.Disk); ok {
		vm.noteDisk()
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

// noteDisk records that the machine has a disk, or has had one.
func (vm *VM) noteDisk() {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	vm.hadDisk = true
}

// place finds a slot for a device and carries out its plan.
func (vm *VM) place(ctx context.Context, id string, p plan) error {
	if remains, ok := vm.claimIn(id, gone); ok {
		if err := vm.clearGone(ctx, id, remains); err != nil {
			return fmt.Errorf("remove what an earlier device left: %w", err)
		}
	}
	at, err := vm.reserve(id, p.bus)
	if err != nil {
		return err
	}
	p.bus.put(p.device, at)
	vm.onThread(p.device, at)
	err = vm.plug(ctx, p)
	switch {
	case err == nil:
		vm.settle(id, attached, p.remains())
	case refused(err):
		vm.unreserve(id)
	default:
		vm.settle(id, unsure, p.left())
	}
	return err
}

// plug carries out a plan. If QEMU refuses a step, the earlier ones are undone;
// if QEMU does not answer, they cannot be.
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

// undo undoes steps after cause, if QEMU still answers. A descriptor that the
// refused command has consumed is no longer known to QEMU: that refusal is
// expected.
func (vm *VM) undo(ctx context.Context, cause error, steps []command) {
	if !refused(cause) {
		return
	}
	vm.repeatLater(steps)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	vm.clean(ctx, steps)
}

// clean tries each of the steps and ignores errors.
func (vm *VM) clean(ctx context.Context, steps []command) {
	for _, step := range steps {
		if err := vm.run(ctx, step); err != nil {
			log.G(ctx).WithField("sandbox", vm.id).WithError(err).Debug("QEMU refused a device, and undoing its back end failed")
		}
	}
}

// refused reports whether QEMU refused a command, as opposed to its effect
// being unknown.
func refused(err error) bool {
	var e *qmp.Error
	return errors.As(err, &e)
}
