package qemu

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

const (
	// unplugRepeat is after how long a guest is asked again: a guest that
	// boots clears the request that came before its driver was there, and
	// never sees it (QEMU's hw/acpi/pcihp.c,
	// acpi_pcihp_device_unplug_request_cb).
	unplugRepeat = time.Second
	// firstTick is how long a machine has run when QEMU can be asked for the
	// first time. QEMU 7.2 notes the guest's time in milliseconds as the end
	// of a request, and takes 0 for never: it would refuse to ask again
	// (same place; softmmu/qdev-monitor.c, qmp_device_del).
	firstTick = 2 * time.Millisecond
)

// errGuestKeeps is a guest that says no.
var errGuestKeeps = errors.New("the guest does not release the device")

// Detach implements hypervisor.Detacher. A SCSI disk goes without asking, and
// the guest is told (hw/scsi/virtio-scsi.c, virtio_scsi_hotunplug). Of any
// other device, on a q35 board, QEMU asks the guest by ACPI, whatever
// controller the bridge has, and takes the device out when the guest ejects
// it. So a machine that was never resumed, not even for firstTick, has nobody
// to ask.
//
// Wait for the guest's first words before: Linux 6.1 was seen to crash when a
// device went while it was still giving the devices their resources.
//
// A request cannot be taken back. After ctx has ended the guest may still let
// go; the ID and its slot stay in use until another Detach has succeeded. Of
// a device that Attach or another Detach works on, Detach fails with
// errdefs.ErrFailedPrecondition.
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
		vm.settle(id, remains)
		return err
	}
	for len(remains) > 0 {
		if err := vm.run(ctx, remains[0]); err != nil && !unknown(err) {
			vm.settle(id, remains)
			return err
		}
		remains = remains[1:]
	}
	vm.unreserve(id)
	return nil
}

// unplug asks for the device until QEMU has none of that ID.
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
			return nil // it went unasked, or after an earlier request
		case err != nil && !underWay(err):
			return err
		}
		gone, err := awaitDeleted(ctx, events, id, again.C)
		if gone || err != nil {
			return err
		}
	}
}

// awaitDeleted waits until the device is gone, or for the time to ask again.
func awaitDeleted(ctx context.Context, events *qmp.Subscription, id string, again <-chan time.Time) (gone bool, err error) {
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

// about is the ID of the device that an event is about, if any. An ACPI event
// has it one level down (qapi/acpi.json).
func about(ev qmp.Event) any {
	if info, ok := ev.Data["info"].(map[string]any); ok {
		return info["device"]
	}
	return ev.Data["device"]
}

// cpuGone reports whether an event is about a part of a CPU that goes with it:
// QEMU 7.2 was seen to announce only that.
func cpuGone(ev qmp.Event, id string) bool {
	return ev.Event == "DEVICE_DELETED" && ev.Data["path"] == peripheral+id+"/lapic"
}

// ejectFailed reports whether the guest reports by ACPI that it keeps a CPU: an
// event (_OST, ACPI 6.5, section 6.3.5) whose source is the ejection, asked for
// or begun, and whose status is neither success nor in progress.
func ejectFailed(ev qmp.Event) bool {
	info, ok := ev.Data["info"].(map[string]any)
	if !ok || ev.Event != "ACPI_DEVICE_OST" {
		return false
	}
	source, _ := info["source"].(float64)
	status, _ := info["status"].(float64)
	return (source == 3 || source == 0x103) && status != 0 && status != 0x84
}

// lostEvents says why a subscription has ended.
func lostEvents(ctx context.Context, events *qmp.Subscription) error {
	if ctx.Err() != nil {
		return fmt.Errorf("wait for the guest's consent: %w", context.Cause(ctx))
	}
	if err := events.Err(); err != nil {
		return err
	}
	return qmp.ErrClosed
}

// underWay is QEMU's refusal to ask the guest a second time while the first
// request stands (softmmu/qdev-monitor.c, qmp_device_del). It has no class of
// its own.
func underWay(err error) bool {
	var e *qmp.Error
	return errors.As(err, &e) && strings.Contains(e.Desc, "in the process of unplug")
}

// unknown is QEMU's refusal to remove what it does not have. Only of devices
// and network devices it has a class (chardev/char.c, qmp_chardev_remove;
// monitor/misc.c, qmp_closefd; monitor/fds.c, qmp_remove_fd; blockdev.c,
// qmp_blockdev_del).
func unknown(err error) bool {
	var e *qmp.Error
	return errors.As(err, &e) && (e.Class == qmp.ClassDeviceNotFound ||
		strings.Contains(e.Desc, "not found") || strings.Contains(e.Desc, "Failed to find node"))
}
