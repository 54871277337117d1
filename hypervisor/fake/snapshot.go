package fake

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

// The steps of a snapshot.
const (
	StepSaveAll Step = "save all"
	StepLoadAll Step = "load all"
)

// maxState bounds what a fake machine's state may be, in bytes.
const maxState = 1 << 20

// SaveAll implements hypervisor.Snapshotter: the machine's ID is its state.
func (vm *VM) SaveAll(ctx context.Context, state *os.File) error {
	if err := vm.Pause(ctx); err != nil {
		return err
	}
	err := vm.monitor.enter(ctx, StepSaveAll, vm)
	if err == nil {
		_, err = state.WriteString(vm.Spec.ID)
	}
	if err != nil {
		return fmt.Errorf("save the whole virtual machine %s: %w", vm.Spec.ID, err)
	}
	return nil
}

// LoadAll implements hypervisor.Snapshotter.
func (vm *VM) LoadAll(ctx context.Context, state *os.File) error {
	err := vm.monitor.enter(ctx, StepLoadAll, vm)
	if err == nil {
		err = vm.checkAwaited()
	}
	if err == nil {
		var text []byte
		text, err = io.ReadAll(io.LimitReader(state, maxState))
		vm.mu.Lock()
		vm.loaded = string(text)
		vm.mu.Unlock()
	}
	if err != nil {
		return fmt.Errorf("load saved state into virtual machine %s: %w", vm.Spec.ID, err)
	}
	return nil
}

func (vm *VM) checkAwaited() error {
	have, err := vm.Layout(context.Background())
	for id, path := range vm.awaitedDevices() {
		if have.Devices[id] != path {
			return fmt.Errorf("device %q is at %q, want %q: %w", id, have.Devices[id], path, errdefs.ErrFailedPrecondition)
		}
	}
	return err
}

// awaitedDevices returns the saved machine's devices.
func (vm *VM) awaitedDevices() map[string]hypervisor.PCIPath {
	if vm.Spec.Awaits == nil {
		return nil
	}
	return vm.Spec.Awaits.Devices
}

// Loaded returns the state that LoadAll has read.
func (vm *VM) Loaded() string {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return vm.loaded
}

// Layout implements hypervisor.Snapshotter.
func (vm *VM) Layout(context.Context) (hypervisor.Layout, error) {
	l := hypervisor.Layout{Devices: map[string]hypervisor.PCIPath{}}
	for _, d := range vm.Devices() {
		path, err := vm.PCIPath(d.DeviceID())
		if err != nil {
			return hypervisor.Layout{}, err
		}
		l.Devices[d.DeviceID()] = path
	}
	return l, nil
}

// Version is that of all machines: one that can save everything.
const Version = "10.0.2"

// Version implements hypervisor.Snapshotter.
func (vm *VM) Version() string { return Version }
