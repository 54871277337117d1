package fake

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/memfile"
)

// The steps of hibernation, and asking the VMM whether it answers.
const (
	StepPause  Step = "pause"
	StepMemory Step = "memory parts"
	// StepDiscard gives memory back to the host. If it fails, half of it is given back.
	StepDiscard Step = "discard"
	StepAnswer  Step = "answer"
)

// Answer implements hypervisor.VM.
func (vm *VM) Answer(ctx context.Context) error {
	if err := vm.monitor.enter(ctx, StepAnswer, vm); err != nil {
		return fmt.Errorf("ask virtual machine %s: %w", vm.Spec.ID, err)
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if vm.gone {
		return fmt.Errorf("ask virtual machine %s: %w", vm.Spec.ID, vm.err)
	}
	return nil
}

// Pause implements hypervisor.Pauser.
func (vm *VM) Pause(ctx context.Context) error {
	if err := vm.monitor.enter(ctx, StepPause, vm); err != nil {
		return fmt.Errorf("pause virtual machine %s: %w", vm.Spec.ID, err)
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if vm.gone {
		return fmt.Errorf("pause virtual machine %s: %w", vm.Spec.ID, vm.err)
	}
	vm.paused = true
	return nil
}

// Paused reports whether the machine was paused, and not resumed since.
func (vm *VM) Paused() bool {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return vm.paused
}

// SetMemory sets the content of the machine's memory file.
func (vm *VM) SetMemory(content []byte) error {
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	if _, err := f.Write(content); err != nil {
		_ = f.Close()
		return err
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	vm.ram = f
	return nil
}

// Memory returns what is in the memory file that SetMemory has made.
func (vm *VM) Memory() ([]byte, error) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", vm.ram.Fd()))
}

// MemoryParts implements hypervisor.Pauser: there are none before SetMemory.
func (vm *VM) MemoryParts(ctx context.Context) ([]memfile.Memory, error) {
	if err := vm.monitor.enter(ctx, StepMemory, vm); err != nil {
		return nil, fmt.Errorf("open memory of virtual machine %s: %w", vm.Spec.ID, err)
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if vm.ram == nil {
		return nil, nil
	}
	fd, err := unix.FcntlInt(vm.ram.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return []memfile.Memory{ram{memfile.File{File: os.NewFile(uintptr(fd), "memory")}, vm}}, nil
}

// ram is the machine's memory file.
type ram struct {
	memfile.File
	vm *VM
}

// Discard implements memfile.Memory.
func (r ram) Discard(ctx context.Context) error {
	cause := r.vm.monitor.enter(ctx, StepDiscard, r.vm)
	if cause == nil {
		return r.File.Discard(ctx)
	}
	size, err := r.Size()
	if err == nil {
		err = unix.Fallocate(int(r.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(size/2))
	}
	return errors.Join(cause, err)
}

var _ hypervisor.Pauser = (*VM)(nil)
