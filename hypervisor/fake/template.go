package fake

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/katabox/katabox/hypervisor"
)

// Describe implements hypervisor.Monitor.
func (m *Monitor) Describe(spec hypervisor.Spec) ([]string, error) {
	return []string{spec.Path, spec.Kernel, spec.KernelParams, fmt.Sprint(spec.VCPUs, spec.MaxVCPUs, spec.MemoryMiB, spec.MaxMemoryMiB)}, nil
}

// Save implements hypervisor.Saver: the machine's ID is its state, and the text
// "memory" all its memory.
func (vm *VM) Save(ctx context.Context, state *os.File) error {
	what := "save virtual machine " + vm.Spec.ID
	if err := vm.monitor.enter(ctx, StepSave, vm); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if _, err := state.WriteString(vm.Spec.ID); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	memory := filepath.Join(vm.Spec.Memory.Dir, vm.Spec.Memory.File)
	if err := os.WriteFile(memory, []byte("memory"), 0o600); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
