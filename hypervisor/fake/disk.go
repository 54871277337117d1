package fake

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

// GrowDisk implements hypervisor.DiskGrower. It leaves the disk's file alone.
func (vm *VM) GrowDisk(ctx context.Context, id string, bytes uint64) error {
	what := fmt.Sprintf("grow disk %q of virtual machine %s", id, vm.Spec.ID)
	if err := vm.monitor.enter(ctx, StepGrow, vm); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if vm.gone {
		return fmt.Errorf("%s: %w", what, vm.err)
	}
	i := vm.find(id)
	if i < 0 {
		return fmt.Errorf("%s: %w", what, errdefs.ErrNotFound)
	}
	if _, ok := vm.devices[i].Device.(hypervisor.Disk); !ok {
		return fmt.Errorf("%s: it is not a disk: %w", what, errdefs.ErrNotFound)
	}
	if vm.grown == nil {
		vm.grown = make(map[string]uint64)
	}
	vm.grown[id] = bytes
	return nil
}

// Grown is the size that a disk was grown to last, in bytes, or 0.
func (vm *VM) Grown(id string) uint64 {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return vm.grown[id]
}
