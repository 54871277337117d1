package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/memfile"
	"github.com/katabox/katabox/hypervisor/procmem"
)

// Pause implements hypervisor.Pauser. QEMU answers when the CPUs stand still,
// block devices have finished what they had begun, and the vhost-user back ends
// have stopped their queues (softmmu/cpus.c, do_vm_stop).
func (vm *VM) Pause(ctx context.Context) error {
	if err := vm.mon.Execute(ctx, "stop", nil, nil); err != nil {
		return vm.explain(ctx, "pause virtual machine", err)
	}
	return nil
}

// Answer implements hypervisor.VM.
func (vm *VM) Answer(ctx context.Context) error {
	if err := vm.mon.Execute(ctx, "query-status", nil, nil); err != nil {
		return vm.explain(ctx, "ask virtual machine", err)
	}
	return nil
}

// MemoryParts implements hypervisor.Pauser. QEMU may have been taken over: its
// descriptors are duplicated and not opened anew, so that they have no other
// rights than its own, and only memfds are taken; what is mapped where the kernel
// says.
func (vm *VM) MemoryParts(context.Context) ([]memfile.Memory, error) {
	if vm.spec.Memory != (hypervisor.MemoryBacking{}) {
		return nil, fmt.Errorf("open memory of virtual machine %s: it is not in unnamed files alone: %w", vm.id, errdefs.ErrFailedPrecondition)
	}
	parts, err := vm.privateParts()
	if err == nil {
		var files []*os.File
		files, err = vm.memfds()
		parts = append(parts, memfile.Files(files...)...)
		if len(parts) > 0 && errors.Is(err, errNoMemfd) {
			err = nil // nothing was plugged
		}
	}
	if err != nil {
		for _, p := range parts {
			_ = p.Close()
		}
		return nil, fmt.Errorf("open memory of virtual machine %s: %w", vm.id, err)
	}
	return parts, nil
}

// privateParts returns the mapping of the template's memory; none for a machine
// that has all of its memory for itself.
func (vm *VM) privateParts() ([]memfile.Memory, error) {
	if !isPrivate(vm.spec) {
		return nil, nil
	}
	mappings, err := procmem.Mappings(vm.proc, vm.template)
	var parts []memfile.Memory
	for _, m := range mappings {
		parts = append(parts, m)
	}
	return parts, err
}

// maxMemories bounds the number of a machine's memory files: boot memory, and as
// many modules as there can be slots (QEMU's ACPI_MAX_RAM_SLOTS).
const maxMemories = 1 + 256

// memfds returns the open memory files, those before an error too.
func (vm *VM) memfds() ([]*os.File, error) {
	pid, ok := vm.proc.Hold()
	if !ok {
		return nil, errDied
	}
	process, err := unix.PidfdOpen(pid, 0)
	vm.proc.Release()
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(process)
	paths, err := memfdPaths(pid)
	if err != nil {
		return nil, err
	}
	if len(paths) > maxMemories {
		return nil, fmt.Errorf("QEMU has %d files of memory, want at most %d", len(paths), maxMemories)
	}
	var files []*os.File
	for _, path := range paths {
		f, err := takeMemfd(process, filepath.Base(path))
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	return files, nil
}

// takeMemfd duplicates a process's descriptor (pidfd_getfd(2), since Linux 5.6).
func takeMemfd(process int, number string) (*os.File, error) {
	n, err := strconv.Atoi(number)
	if err != nil {
		return nil, err
	}
	fd, err := unix.PidfdGetfd(process, n, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_getfd", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	if err := checkMemfd(fd); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkMemfd returns an error for a file that is not in memory. Another file
// could block its reader.
func checkMemfd(fd int) error {
	var in unix.Statfs_t
	var file unix.Stat_t
	if err := unix.Fstatfs(fd, &in); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	if err := unix.Fstat(fd, &file); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if in.Type != unix.TMPFS_MAGIC || file.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("QEMU's file of memory has type %#x on file system %#x, want a regular file in memory", file.Mode&unix.S_IFMT, in.Type)
	}
	return nil
}
