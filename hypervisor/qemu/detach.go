package qemu

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
	"github.com/katabox/katabox/internal/intime"
)

const (
	// unplugRepeat is after how long a guest is asked again: a booting guest
	// clears a request that came before its driver was loaded, and never sees
	// it (QEMU's hw/acpi/pcihp.c, acpi_pcihp_device_unplug_request_cb).
	unplugRepeat = time.Second
	// firstTick is how long a machine must have run before QEMU can be asked
	// the first time. QEMU 7.2 records the guest's time in milliseconds as the
	// expiry of a request, and takes 0 as never: it would refuse to ask again
	// (same place; softmmu/qdev-monitor.c, qmp_device_del).
	firstTick = 2 * time.Millisecond
)

// errGuestKeeps means that the guest refuses.
var errGuestKeeps = errors.New("the guest does not release the device")

// Detach implements hypervisor.Detacher. A SCSI disk is removed without asking
// the guest, which is then told (hw/scsi/virtio-scsi.c, virtio_scsi_hotunplug).
// For any other device, on a q35 board, QEMU asks the guest by ACPI, whatever
// controller the bridge has, and removes the device when the guest ejects it.
// So a machine must have run for firstTick.
//
// Wait for the guest's first output before calling it: Linux 6.1 was seen
// to crash when a device was removed while it was still assigning resources to
// devices.
//
// A request cannot be withdrawn. After ctx has ended the guest may still
// release the device; the ID and its slot stay in use until another Detach has
// succeeded. After hypervisor.ErrLeftover they stay in use too, until another
// Detach or Attach of the ID has finished the removal. While Attach or another
// Detach works on the device, Detach fails with errdefs.ErrFailedPrecondition.
func (vm *VM) Detach(ctx context.Context, id string) error {
	if err := vm.detach(ctx, id); err != nil {
		return vm.explain(ctx, fmt.Sprintf("detach device %q from virtual machine", id), err)
	}
	return nil
}

func (vm *VM) detach(ctx context.Context, id string) error {
	remains, err := vm.claim(id)
	if err != nil {
		return err
	}
	if err := vm.unplug(ctx, id); err != nil {
		vm.release(id)
		return err
	}
	return vm.clearGone(ctx, id, remains)
}

// clearGone removes what QEMU keeps of a device that is gone, which it does for
// a while even if ctx ends: no guest has to consent to it.
func (vm *VM) clearGone(ctx context.Context, id string, remains []command) error {
	ctx, cancel := intime.Outlast(ctx, cleanupTimeout)
	defer cancel()
	for len(remains) > 0 {
		if err := vm.run(ctx, remains[0]); err != nil && !unknown(err) {
			vm.settle(id, gone, remains)
			return fmt.Errorf("%w: %w", hypervisor.ErrLeftover, err)
		}
		remains = remains[1:]
	}
	vm.unreserve(id)
	return nil
}

// unplug requests the removal until QEMU has no device of that ID.
func (vm *VM) unplug(ctx context.Context, id string) error {
	if err := vm.running(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := vm.mon.Subscribe(ctx) // before the request: its answer can come first
	again := time.NewTicker(unplugRepeat)
	defer again.Stop()
	for {
		err := vm.mon.Execute(ctx, "device_del", map[string]any{"id": id}, nil)
		switch {
		case qmp.IsClass(err, qmp.ClassDeviceNotFound):
			return nil // it was removed without a request, or by an earlier one
		case err != nil && !underWay(err):
			return err
		}
		deleted, err := awaitDeleted(ctx, events, id, again.C)
		if deleted || err != nil {
			return err
		}
	}
}

// awaitDeleted waits until the device is gone, or for the time to ask again.
func awaitDeleted(ctx context.Context, events *qmp.Subscription, id string, again <-chan time.Time) (deleted bool, err error) {
	for {
		select {
		case ev, ok := <-events.C():
			switch {
			case !ok:
				return false, lostEvents(ctx, events)
			case cpuGone(ev, id):
				return true, nil
			case about(ev) != id:
			case ev.Event == "DEVICE_DELETED":
				return true, nil
			case ev.Event == "DEVICE_UNPLUG_GUEST_ERROR", ejectFailed(ev):
				return false, errGuestKeeps
			}
		case <-again:
			return false, nil
		case <-ctx.Done():
			return false, fmt.Errorf("wait for the guest's consent: %w", context.Cause(ctx))
		}
	}
}

// about returns the ID of the device that an event is about, if any. An ACPI
// event has it one level deeper (qapi/acpi.json).
func about(ev qmp.Event) any {
	if info, ok := ev.Data["info"].(map[string]any); ok {
		return info["device"]
	}
	return ev.Data["device"]
}

// cpuGone reports whether an event announces the removal of a part of a CPU:
// QEMU 7.2 was seen to announce only that.
func cpuGone(ev qmp.Event, id string) bool {
	return ev.Event == "DEVICE_DELETED" && ev.Data["path"] == peripheral+id+"/lapic"
}

// ejectFailed reports whether an event is the guest's refusal by ACPI to
// release a CPU: an _OST (ACPI 6.5, section 6.3.5) whose source is an ejection,
// requested or in progress, and whose status is neither success nor in
// progress.
func ejectFailed(ev qmp.Event) bool {
	info, ok := ev.Data["info"].(map[string]any)
	if !ok || ev.Event != "ACPI_DEVICE_OST" {
		return false
	}
	source, _ := info["source"].(float64)
	status, _ := info["status"].(float64)
	return (source == 3 || source == 0x103) && status != 0 && status != 0x84
}

// lostEvents returns why a subscription has ended.
func lostEvents(ctx context.Context, events *qmp.Subscription) error {
	if ctx.Err() != nil {
		return fmt.Errorf("wait for the guest's consent: %w", context.Cause(ctx))
	}
	if err := events.Err(); err != nil {
		return err
	}
	return qmp.ErrClosed
}

// underWay reports whether err is QEMU's refusal to ask the guest again while a
// request is pending (softmmu/qdev-monitor.c, qmp_device_del). It has no error
// class.
func underWay(err error) bool {
	var e *qmp.Error
	return errors.As(err, &e) && strings.Contains(e.Desc, "in the process of unplug")
}

// unknown reports whether err is QEMU's refusal to remove what it does not
// have. It has an error class only for devices and network devices
// (chardev/char.c, qmp_chardev_remove; monitor/misc.c, qmp_closefd;
// monitor/fds.c, qmp_remove_fd; blockdev.c, qmp_blockdev_del).
func unknown(err error) bool {
	var e *qmp.Error
	return errors.As(err, &e) && (e.Class == qmp.ClassDeviceNotFound ||
		strings.Contains(e.Desc, "not found") || strings.Contains(e.Desc, "Failed to find node"))
}
