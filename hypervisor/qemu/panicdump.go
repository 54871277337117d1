package qemu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

const (
	// dumpRate is the minimum rate of writing memory, in MiB per second;
	// dumpGrace is added to the resulting time.
	dumpRate  = 20
	dumpGrace = time.Minute
	// dumpName is the file's name: the time of the guest kernel's panic.
	dumpName = "vmcore-20060102T150405.000Z.elf"
)

// panicDevice returns the device by which the guest's kernel reports a panic
// (QEMU's docs/specs/pvpanic.rst), and the option that pauses the machine for
// the dump instead of ending it.
func panicDevice(spec hypervisor.Spec) []string {
	if spec.PanicDump.Dir == "" {
		return nil
	}
	return []string{"-device", "pvpanic-pci,bus=pcie.0", "-action", "panic=pause"}
}

// isPanic reports, once, whether an event requires a dump, which the caller
// must then make.
func (vm *VM) isPanic(ev qmp.Event) bool {
	if ev.Event != "GUEST_PANICKED" || vm.spec.PanicDump.Dir == "" {
		return false
	}
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if vm.dumped != nil {
		return false
	}
	vm.dumped = make(chan struct{})
	return true
}

// savePanic writes the memory of a guest whose kernel has panicked, and ends
// the machine.
func (vm *VM) savePanic(ctx context.Context) {
	defer close(vm.dumped)
	size := max(vm.spec.MemoryMiB, vm.spec.MaxMemoryMiB) // an upper bound
	ctx, cancel := context.WithTimeout(ctx, dumpGrace+time.Duration(size)*time.Second/dumpRate)
	defer cancel()
	start := time.Now()
	path, err := vm.dump(ctx)
	logger := log.G(ctx).WithField("sandbox", vm.id)
	if err != nil {
		logger.WithError(err).Error("the guest's kernel panicked and its memory was not saved")
		path = "not saved: " + err.Error()
	} else {
		logger.WithField("file", path).WithField("took", time.Since(start)).Warn("the guest's kernel panicked; its memory is saved")
		path = "in " + path
	}
	vm.mu.Lock()
	vm.panicked = path
	vm.mu.Unlock()
	if err := vm.mon.Execute(ctx, "quit", nil, nil); err != nil {
		logger.WithError(err).Debug("QEMU did not accept the quit command")
		_ = vm.proc.Signal(unix.SIGKILL) // if that fails, it has already ended
	}
}

// dump writes the file. An incomplete file is removed.
func (vm *VM) dump(ctx context.Context) (path string, err error) {
	dir := vm.spec.PanicDump.Dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make directory for dump: %w", err)
	}
	size, err := vm.countMemory(ctx)
	if err != nil {
		return "", fmt.Errorf("read the machine's memory size: %w", err)
	}
	if err := roomFor(dir, size); err != nil {
		return "", err
	}
	path = filepath.Join(dir, time.Now().UTC().Format(dumpName))
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("make dump: %w", err)
	}
	defer func() {
		_ = file.Close()
		if err != nil {
			_ = os.Remove(path)
		}
	}()
	const fd = "dump"
	if err := vm.mon.GetFD(ctx, fd, file); err != nil {
		return path, fmt.Errorf("pass dump to QEMU: %w", err)
	}
	// qapi/dump.json, dump-guest-memory. Without "detach" the answer comes
	// when all is written.
	args := map[string]any{"paging": vm.spec.PanicDump.Paging, "protocol": "fd:" + fd}
	if err := vm.mon.Execute(ctx, "dump-guest-memory", args, nil); err != nil {
		return path, fmt.Errorf("dump guest memory: %w", err)
	}
	return path, nil
}

// roomFor checks in advance that a file system has room for memory of that
// size.
func roomFor(dir string, memoryMiB uint64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("find room for dump: %w", err)
	}
	if free := fs.Bavail * uint64(fs.Bsize) / mib; free <= memoryMiB {
		return fmt.Errorf("no room for dump of %d MiB: %s has %d MiB left", memoryMiB, dir, free)
	}
	return nil
}

// awaitDump waits, within ctx, for a dump that has begun.
func (vm *VM) awaitDump(ctx context.Context) {
	vm.mu.Lock()
	dumped := vm.dumped
	vm.mu.Unlock()
	if dumped == nil {
		return
	}
	select {
	case <-dumped:
	case <-vm.proc.Done():
	case <-ctx.Done():
	}
}
