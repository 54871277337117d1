package fake

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
)

// firstPID keeps fake process ids above Linux's largest (PID_MAX_LIMIT, 2^22):
// a signal to one hits no process.
const firstPID = 1 << 23

// VM is a machine in memory.
type VM struct {
	// Spec is what it was launched with.
	Spec hypervisor.Spec

	monitor *Monitor
	pid     int
	done    chan struct{}

	mu       sync.Mutex
	devices  []attached // in the order of their attachment
	detached []string
	resumed  bool
	paused   bool
	ram      *os.File // nil before SetMemory
	loaded   string   // by LoadAll
	stops    int
	gone     bool
	err      error
	console  string
	vcpus    []int
	grown    map[string]uint64 // by the disk's ID

	cpus      uint32 // plugged
	memory    uint64 // plugged, in MiB
	keepsSize bool
	leave     uint32 // CPUs that the guest was asked to release, and keeps
}

// attached is a device and its slot.
type attached struct {
	hypervisor.Device
	slot int // or its target
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
	case hypervisor.VhostVsock, hypervisor.VhostUserVsock, hypervisor.FSShare, hypervisor.NIC, hypervisor.Disk,
		hypervisor.RNG, hypervisor.Balloon:
	default:
		return fmt.Errorf("%s: %w", what, errdefs.ErrNotImplemented)
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if vm.gone {
		return fmt.Errorf("%s: %w", what, vm.err)
	}
	if vm.find(d.DeviceID()) >= 0 {
		return fmt.Errorf("%s: %w", what, errdefs.ErrAlreadyExists)
	}
	vm.devices = append(vm.devices, attached{d, vm.slotFor(d)})
	return nil
}

// Detach implements hypervisor.Detacher. Its guest releases the device
// immediately; hook StepDetach to change that.
func (vm *VM) Detach(ctx context.Context, id string) error {
	what := fmt.Sprintf("detach device %q from virtual machine %s", id, vm.Spec.ID)
	if err := vm.monitor.enter(ctx, StepDetach, vm); err != nil {
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
	if !vm.resumed {
		return fmt.Errorf("%s: it has not run yet: %w", what, errdefs.ErrFailedPrecondition)
	}
	vm.devices = slices.Delete(vm.devices, i, i+1)
	vm.detached = append(vm.detached, id)
	return nil
}

// find returns the index of a device, or -1. The caller holds mu.
func (vm *VM) find(id string) int {
	return slices.IndexFunc(vm.devices, func(d attached) bool { return d.DeviceID() == id })
}

// slotFor returns a device's slot: that of the saved machine, or a free one. The
// caller holds mu.
func (vm *VM) slotFor(d hypervisor.Device) (slot int) {
	if _, err := fmt.Sscanf(string(vm.awaitedDevices()[d.DeviceID()]), "01/%x", &slot); err == nil {
		return slot
	}
	return vm.freeSlot(onSCSI(d))
}

// freeSlot returns the lowest free slot, or target of SCSI disks. The caller
// holds mu.
func (vm *VM) freeSlot(scsi bool) int {
	slot := 1
	for slices.ContainsFunc(vm.devices, func(d attached) bool { return onSCSI(d.Device) == scsi && d.slot == slot }) {
		slot++
	}
	return slot
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
	vm.resumed, vm.paused = true, false
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

// Die ends the machine with err, as its guest (hypervisor.ErrPowerOff) or its
// VMM process (any other error) would. The first end counts.
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

// SetVCPUThreads sets what VCPUThreads returns; initially none.
func (vm *VM) SetVCPUThreads(ids ...int) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	vm.vcpus = ids
}

// VCPUThreads implements hypervisor.VCPUThreader.
func (vm *VM) VCPUThreads(ctx context.Context) (threads []int, used int, err error) {
	what := "find vCPU threads of virtual machine " + vm.Spec.ID
	if err := vm.monitor.enter(ctx, StepVCPUThreads, vm); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", what, err)
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if vm.gone {
		return nil, 0, fmt.Errorf("%s: %w", what, vm.err)
	}
	return slices.Clone(vm.vcpus), len(vm.vcpus), nil
}

// ConsoleTail implements hypervisor.VM.
func (vm *VM) ConsoleTail() string {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return vm.console
}

// SetConsole sets what ConsoleTail returns.
func (vm *VM) SetConsole(text string) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	vm.console = text
}

// Devices returns the attached devices, in the order of their attachment.
func (vm *VM) Devices() []hypervisor.Device {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	var all []hypervisor.Device
	for _, d := range vm.devices {
		all = append(all, d.Device)
	}
	return all
}

// Detached returns the IDs of the devices that were detached, in order.
func (vm *VM) Detached() []string {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return slices.Clone(vm.detached)
}

// Resumed reports whether Resume has succeeded.
func (vm *VM) Resumed() bool {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return vm.resumed
}

// Stops returns how often Stop was called.
func (vm *VM) Stops() int {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return vm.stops
}
