package fake

import (
	"context"
	"fmt"
	"sync"

	"github.com/katabox/katabox/hypervisor"
)

// Step is something that can be made to fail.
type Step string

// The steps. Attaching fails for all kinds of device (StepAttach) or for one
// (AttachStep).
const (
	StepLaunch Step = "launch"
	StepAttach Step = "attach"
	StepDetach Step = "detach"
	StepResume Step = "resume"
	StepStop   Step = "stop"
	StepSave   Step = "save"
	StepGrow   Step = "grow disk"
	// StepVCPUThreads is their listing.
	StepVCPUThreads Step = "vcpu threads"
)

// AttachStep is the step of attaching a device of d's kind.
func AttachStep(d hypervisor.Device) Step { return Step(fmt.Sprintf("%s %T", StepAttach, d)) }

// Monitor makes VMs in memory. The zero value is ready for use, also from
// several goroutines.
type Monitor struct {
	mu    sync.Mutex
	vms   []*VM
	fails map[Step]error
	hooks map[Step]func(context.Context, *VM) error
	pid   int
}

var _ hypervisor.Monitor = (*Monitor)(nil)

// Fail makes a step fail with err, in all machines, until it is set to nil. A
// failed step has no effect; after a failed stop the machine lives on.
func (m *Monitor) Fail(step Step, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails == nil {
		m.fails = make(map[Step]error)
	}
	m.fails[step] = err
}

// Hook calls f at a step, before its effect, with the machine (nil at
// StepLaunch) and the caller's context. It may block, and its error is the
// step's.
func (m *Monitor) Hook(step Step, f func(context.Context, *VM) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hooks == nil {
		m.hooks = make(map[Step]func(context.Context, *VM) error)
	}
	m.hooks[step] = f
}

// VMs returns the machines that were launched, in order.
func (m *Monitor) VMs() []*VM {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*VM(nil), m.vms...)
}

// Launch implements hypervisor.Monitor.
func (m *Monitor) Launch(ctx context.Context, spec hypervisor.Spec) (hypervisor.VM, error) {
	if err := m.enter(ctx, StepLaunch, nil); err != nil {
		return nil, fmt.Errorf("launch virtual machine %s: %w", spec.ID, err)
	}
	if t := spec.Template; t != nil && t.Filled != nil {
		if err := t.Filled(); err != nil {
			return nil, fmt.Errorf("launch virtual machine %s: %w", spec.ID, err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pid++
	vm := &VM{Spec: spec, monitor: m, pid: firstPID + m.pid, done: make(chan struct{})}
	if spec.Template != nil {
		for _, d := range spec.Template.Devices {
			vm.devices = append(vm.devices, attached{d, vm.freeSlot(onSCSI(d))})
		}
	}
	m.vms = append(m.vms, vm)
	return vm, nil
}

// enter begins a step: it checks the caller's context, calls the hook, and
// returns the failure.
func (m *Monitor) enter(ctx context.Context, step Step, vm *VM) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	m.mu.Lock()
	hook, err := m.hooks[step], m.fails[step]
	m.mu.Unlock()
	if hook != nil {
		if err := hook(ctx, vm); err != nil {
			return err
		}
	}
	return err
}
