package qemu

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

// plugModule adds the module of that number and that size in MiB. An attempt that
// fails leaves nothing in QEMU that the next one of the same number would meet: QEMU
// refuses an object whose ID is in use.
func (vm *VM) plugModule(ctx context.Context, number int, size uint64) error {
	id := fmt.Sprintf("%s%d", dimmPrefix, number)
	if err := freeHugePages(sysHugePages, vm.spec.Memory.HugePageMiB, size); err != nil {
		return fmt.Errorf("plug %d MiB: %w", size, err)
	}
	add, remove := memoryObject(id, size, vm.spec.Memory)
	if atOnce(vm.spec.Memory) {
		add.args["prealloc-threads"] = fillThreads(vm.spec)
	}
	if err := vm.clearModule(ctx, remove); err != nil {
		return fmt.Errorf("remove the memory that an earlier attempt left: %w", err)
	}
	vm.moduleLeft = true
	if err := vm.addModule(ctx, id, size, add); err != nil {
		vm.dropModule(ctx, remove, err)
		return err
	}
	vm.moduleLeft = false
	return nil
}

// addModule adds a module's memory and then the module.
func (vm *VM) addModule(ctx context.Context, id string, size uint64, add command) error {
	limit := qmp.DefaultTimeout + fillTime(vm.spec.Memory, size)
	if err := vm.mon.ExecuteWithin(ctx, limit, add.name, add.args, nil); err != nil {
		return err
	}
	device := map[string]any{"driver": ModelMemoryModule, "id": id, "memdev": id + memorySuffix}
	err := vm.mon.Execute(ctx, "device_add", device, nil)
	if tableFull(err) {
		return fmt.Errorf("%w: %w", err, errdefs.ErrResourceExhausted)
	}
	return err
}

// clearModule removes the memory of the next module if an earlier attempt may have
// left it.
func (vm *VM) clearModule(ctx context.Context, remove command) error {
	if !vm.moduleLeft {
		return nil
	}
	if err := vm.run(ctx, remove); err != nil && !unknown(err) {
		return err
	}
	vm.moduleLeft = false
	return nil
}

// dropModule removes a module's memory after cause. If QEMU has not answered, it does
// so in the order of the commands: should the module be plugged by then, QEMU refuses
// to remove its memory. After another failure clearModule tries again.
func (vm *VM) dropModule(ctx context.Context, remove command, cause error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	var err error
	if refused(cause) {
		err = vm.run(ctx, remove) // the refused device may have it in use a little longer
	} else {
		err = vm.mon.Execute(ctx, remove.name, remove.args, nil)
	}
	vm.moduleLeft = err != nil && !unknown(err)
	if vm.moduleLeft {
		log.G(ctx).WithField("sandbox", vm.id).WithError(err).Debug("plugging memory failed, and QEMU did not remove it")
	}
}

// tableFull reports whether err is QEMU's refusal of memory for which KVM or a vhost
// back end has no room in its table (hw/mem/memory-device.c,
// memory_device_check_addable): "has no free memory slots left", since QEMU 8.2 "has
// not enough free memory slots left". It has no error class.
func tableFull(err error) bool {
	var e *qmp.Error
	return errors.As(err, &e) && strings.Contains(e.Desc, "free memory slots left")
}
