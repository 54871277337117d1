package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/memfile"
)

// Describe implements hypervisor.Monitor: QEMU's arguments. The rate of the
// host's time stamp counter is not among them: each process measures it
// slightly differently.
func (m *Monitor) Describe(spec hypervisor.Spec) ([]string, error) {
	spec.ID, spec.NetworkNamespace = "template", ""
	spec.ConsoleLine, spec.Jail, spec.Template, spec.Awaits = nil, nil, nil, nil
	spec.Memory, spec.ExtraMonitor = hypervisor.MemoryBacking{}, hypervisor.ExtraMonitor{}
	return BuildArgs(spec, Wiring{Firmware: firmware(spec)})
}

// Save implements hypervisor.Saver. x-ignore-shared excludes the memory from
// the state. Since QEMU 8.1 it does so only for memory that was opened by its
// path (migration/ram.c, migrate_ram_is_ignored): other memory would be written
// page by page, and all of it allocated on the host for that.
func (vm *VM) Save(ctx context.Context, state *os.File) error {
	if err := vm.Pause(ctx); err != nil {
		return err
	}
	if err := vm.migrate(ctx, save, state, shared); err != nil {
		return vm.explain(ctx, "save virtual machine", err)
	}
	return nil
}

// load restores a template into a machine that waits for its state (-incoming
// defer). The memory is copied meanwhile; the guest does not run yet.
func (vm *VM) load(ctx context.Context, t hypervisor.Template) error {
	if t.Sealed != nil {
		return vm.loadSealed(ctx, t)
	}
	memory, err := vm.memoryFile()
	if err != nil {
		return fmt.Errorf("load template: %w", err)
	}
	copied := make(chan error, 1)
	go func() { copied <- memfile.Copy(memory, t.Memory, t.MemorySum) }()
	err = vm.loadState(ctx, t)
	copyErr := <-copied // bounded by the memory's size
	if closeErr := memory.Close(); copyErr == nil {
		copyErr = closeErr
	}
	if err != nil {
		return vm.explain(ctx, "load template into virtual machine", err)
	}
	return copyErr
}

// loadSealed restores a template whose memory the machine has mapped privately.
// QEMU has not used it yet: what a page's first write finds in the file stays in
// the machine. No guest, and no state of one, comes to a QEMU that could still
// change the file.
func (vm *VM) loadSealed(ctx context.Context, t hypervisor.Template) error {
	if t.Filled != nil {
		if err := t.Filled(); err != nil {
			return fmt.Errorf("load template: %w", err)
		}
	}
	if err := vm.loadState(ctx, t); err != nil {
		return vm.explain(ctx, "load template into virtual machine", err)
	}
	return nil
}

func (vm *VM) loadState(ctx context.Context, t hypervisor.Template) error {
	for _, d := range t.Devices {
		if err := vm.attach(ctx, d); err != nil {
			return fmt.Errorf("attach %s %q: %w", kindOf(d), d.DeviceID(), err)
		}
	}
	return vm.migrate(ctx, load, t.State, shared)
}

// memfdName begins what /proc shows for the boot memory of the zero
// MemoryBacking (backends/hostmem-memfd.c).
const memfdName = "/memfd:memory-backend-memfd"

// memoryFile opens the machine's boot memory, which QEMU holds as an unnamed
// descriptor.
func (vm *VM) memoryFile() (*os.File, error) {
	paths, err := memfdPaths(vm.PID())
	if err != nil {
		return nil, fmt.Errorf("find QEMU's memory: %w", err)
	}
	return os.OpenFile(paths[0], os.O_RDWR, 0)
}

// errNoMemfd means that a process has no memory in unnamed files.
var errNoMemfd = errors.New("none of its files is " + memfdName)

// memfdPaths returns where /proc shows a process's descriptors with the name of
// such memory: at least one.
func memfdPaths(pid int) (paths []string, err error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		// A descriptor may be closed meanwhile.
		if target, err := os.Readlink(path); err == nil && strings.HasPrefix(target, memfdName) {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return nil, errNoMemfd
	}
	return paths, nil
}
