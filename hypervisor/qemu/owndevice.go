package qemu

import (
	"context"
	"fmt"
	"strings"
)

// placeOwn is place for a device that the machine adds for itself, with the first need.
// The caller of Attach detaches what QEMU has not confirmed; these devices have no
// caller. After such an attempt the next need asks QEMU what came of it.
func (vm *VM) placeOwn(ctx context.Context, id string, p plan) error {
	remains, ok := vm.claimIn(id, unsure)
	if !ok {
		return vm.place(ctx, id, p)
	}
	there, err := vm.hasDevice(ctx, id)
	switch {
	case err != nil:
		vm.release(id)
		return fmt.Errorf("find the device of an earlier attempt: %w", err)
	case there:
		vm.settle(id, attached, p.remains())
		return nil
	}
	if err := vm.clearGone(ctx, id, remains); err != nil {
		return fmt.Errorf("remove what an earlier attempt left: %w", err)
	}
	return vm.place(ctx, id, p)
}

// hasDevice reports whether QEMU has a device that device_add has added. It carries
// out commands in their order: the answer includes those without one.
func (vm *VM) hasDevice(ctx context.Context, id string) (bool, error) {
	var all []struct { // qapi/qom.json, ObjectPropertyInfo
		Name string `json:"name"`
	}
	args := map[string]any{"path": strings.TrimSuffix(peripheral, "/")}
	if err := vm.mon.Execute(ctx, "qom-list", args, &all); err != nil {
		return false, err
	}
	for _, property := range all {
		if property.Name == id {
			return true, nil
		}
	}
	return false, nil
}
