package fake

import (
	"context"
	"fmt"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

// firstPID keeps fake process ids above Linux's largest (PID_MAX_LIMIT, 2^22):
// a test that signals one hits nobody.
const firstPID = 1 << 23

// VM is a machine in memory.
type VM struct {
	// Spec is what it was launched with.
	Spec hypervisor.Spec

	monitor *Monitor
	pid     int
	done    chan struct{}

	mu      sync.Mutex
	devices []hypervisor.Device
	resumed bool
	stops   int
	gone    bool
	err     error
	console string
}

var _ hypervisor.VM = (*VM)(nil)

// Attach implements hypervisor.VM.
func (vm *VM) Attach(ctx context.Context, d hypervisor.Device) error {
	what := fmt.Sprintf("attach %T %q to virtual machine %s", d, d.DeviceID(), vm.Spec.ID)
	for _, step := range []Step{StepAttach, AttachStep(d)} {
		if err := vm.monitor.enter(ctx, step, vm); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	switch d.(type) {
	case hypervisor.VhostVsock, hypervisor.VhostUserVsock, hypervisor.FSShare, hypervisor.NIC:
	default:
		return fmt.Errorf("%s: %w", what, errdefs.ErrNotImplemented)
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if vm.gone {
		return fmt.Errorf("%s: %w", what, vm.err)
	}
	for _, other := range vm.devices {
		if other.DeviceID() == d.DeviceID() {
			return fmt.Errorf("%s: %w", what, errdefs.ErrAlreadyExists)
		}
	}
	vm.devices = append(vm.devices, d)
	return nil
}

// PCIPath implements hypervisor.VM: devices stand in the order of their
// attachment, behind a bridge in slot 1.
func (vm *VM) PCIPath(id string) (hypervisor.PCIPath, error) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	for i, d := range vm.devices {
		if d.DeviceID() == id {
			return hypervisor.PCIPath(fmt.Sprintf("01/%02x", i+1)), nil
		}
	}
	return "", fmt.Errorf("find device %q of virtual machine %s: %w", id, vm.Spec.ID, errdefs.ErrNotFound)
}

// Resume implements hypervisor.VM.
func (vm *VM) Resume(ctx context.Context) error {
	if err := vm.monitor.enter(ctx, StepResume, vm); err != nil {
		return fmt.Errorf("resume virtual machine %s: %w", vm.Spec.ID, err)
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if vm.gone {
		return fmt.Errorf("resume virtual machine %s: %w", vm.Spec.ID, vm.err)
	}
	vm.resumed = true
	return nil
}

// Stop implements hypervisor.VM.
func (vm *VM) Stop(ctx context.Context) error {
	vm.mu.Lock()
	vm.stops++
	vm.mu.Unlock()
	if err := vm.monitor.enter(context.WithoutCancel(ctx), StepStop, vm); err != nil {
		return fmt.Errorf("stop virtual machine %s: %w", vm.Spec.ID, err)
	}
	vm.Die(hypervisor.ErrStopped)
	return nil
}

// Die ends the machine with err, as its guest (hypervisor.ErrPowerOff) or
// its monitor process (any other error) would. The first end counts.
func (vm *VM) Die(err error) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if vm.gone {
		return
	}
	vm.gone, vm.err = true, err
	close(vm.done)
}

// Done implements hypervisor.VM.
func (vm *VM) Done() <-chan struct{} { return vm.done }

// Err implements hypervisor.VM.
func (vm *VM) Err() error {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return vm.err
}

// PID implements hypervisor.VM. No process has it.
func (vm *VM) PID() int { return vm.pid }

// ConsoleTail implements hypervisor.VM.
func (vm *VM) ConsoleTail() string {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return vm.console
}

// SetConsole is what ConsoleTail gives from now on.
func (vm *VM) SetConsole(text string) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	vm.console = text
}

// Devices are what was attached, in order.
func (vm *VM) Devices() []hypervisor.Device {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return append([]hypervisor.Device(nil), vm.devices...)
}

// Resumed tells whether Resume has succeeded.
func (vm *VM) Resumed() bool {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return vm.resumed
}

// Stops is how often Stop was called.
func (vm *VM) Stops() int {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return vm.stops
}
