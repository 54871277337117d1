package fake

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

// The steps of changing a machine's size.
const (
	StepSetVCPUs  Step = "set vCPUs"
	StepSetMemory Step = "set memory"
)

// SetVCPUs implements hypervisor.CPUPlugger. Its guest complies, unless
// KeepSize was called. It does not change VCPUThreads.
func (vm *VM) SetVCPUs(ctx context.Context, n uint32) (uint32, error) {
	now, err := resize(ctx, vm, StepSetVCPUs, &vm.cpus, n, vm.Spec.VCPUs, vm.Spec.MaxVCPUs)
	if n = max(n, vm.Spec.VCPUs); err == nil && n < now {
		vm.mu.Lock()
		defer vm.mu.Unlock()
		vm.leave = now - n
	}
	return now, err
}

// SetMemoryMiB implements hypervisor.MemoryPlugger, in steps of 1 MiB and without
// adding more than n, for any model, except that MemoryDIMM does not shrink. Its guest
// behaves as in SetVCPUs; what it keeps it is not asked for any more.
func (vm *VM) SetMemoryMiB(ctx context.Context, n, _ uint64) (uint64, error) {
	if vm.Spec.MaxMemoryMiB <= vm.Spec.MemoryMiB {
		return vm.Spec.MemoryMiB, fmt.Errorf("%s of virtual machine %s: %w", StepSetMemory, vm.Spec.ID, errdefs.ErrNotImplemented)
	}
	if vm.Spec.MemoryModel != hypervisor.MemoryVirtio {
		_, now := vm.Size()
		n = max(n, now)
	}
	return resize(ctx, vm, StepSetMemory, &vm.memory, n, vm.Spec.MemoryMiB, vm.Spec.MaxMemoryMiB)
}

// resize changes plugged, the amount beyond least.
func resize[T uint32 | uint64](ctx context.Context, vm *VM, step Step, plugged *T, n, least, most T) (T, error) {
	what := fmt.Sprintf("%s of virtual machine %s", step, vm.Spec.ID)
	err := vm.monitor.enter(ctx, step, vm)
	vm.mu.Lock()
	defer vm.mu.Unlock()
	now := least + *plugged
	switch {
	case err != nil:
		return now, fmt.Errorf("%s: %w", what, err)
	case vm.gone:
		return now, fmt.Errorf("%s: %w", what, vm.err)
	case !vm.resumed:
		return now, fmt.Errorf("%s: it has not run yet: %w", what, errdefs.ErrFailedPrecondition)
	}
	want := min(max(n, least), max(least, most))
	if want < now && vm.keepsSize {
		return now, nil
	}
	*plugged = want - least
	return want, nil
}

// KeepSize sets whether the guest keeps all CPUs and memory from now on. One that
// no longer does releases the CPUs that it was asked for meanwhile.
func (vm *VM) KeepSize(keep bool) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	vm.keepsSize = keep
	if !keep {
		vm.cpus -= min(vm.leave, vm.cpus)
		vm.leave = 0
	}
}

// Size returns how many CPUs and how much memory in MiB there are.
func (vm *VM) Size() (vcpus uint32, memoryMiB uint64) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return vm.Spec.VCPUs + vm.cpus, vm.Spec.MemoryMiB + vm.memory
}
