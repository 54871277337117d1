package qemu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
	"github.com/katabox/katabox/internal/intime"
)

const (
	// dumpRate is the minimum rate of writing memory, in MiB per second;
	// dumpGrace is added to the resulting time.
	dumpRate  = 20
	dumpGrace = time.Minute
	// dumpExtraMiB is room beside the memory, for firmware, CPU registers and headers.
	dumpExtraMiB = 64
	// dumpFileWait bounds making the file, and closing it.
	dumpFileWait = 10 * time.Second
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
	return []string{"-device", ModelPanic + ",bus=pcie.0", "-action", "panic=pause"}
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
	size, err := vm.countMemory(ctx)
	if err != nil {
		return "", fmt.Errorf("read the machine's memory size: %w", err)
	}
	most := mostOfDump(vm.spec, size)
	file, err := makeDump(ctx, vm.spec.PanicDump.Dir, most)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, endDump(ctx, file, err == nil)) }()
	return file.Name(), vm.dumpInto(ctx, file, most)
}

// mostOfDump returns the largest size of a dump of the machine's memory, in bytes. sizeMiB
// is the memory that QEMU reports; a compromised QEMU may lie. With PanicDump.Paging, each
// page whose neighbours are elsewhere adds a header of 56 bytes (elf.h, Elf64_Phdr).
func mostOfDump(spec hypervisor.Spec, sizeMiB uint64) uint64 {
	sizeMiB = min(max(sizeMiB, spec.MemoryMiB), max(spec.MemoryMiB, spec.MaxMemoryMiB))
	return (sizeMiB + sizeMiB/64 + dumpExtraMiB) * mib
}

// dumpInto has QEMU write the memory to the file, at most that many bytes. QEMU gets a
// pipe: with the file itself, one that was taken over could fill the disk.
func (vm *VM) dumpInto(ctx context.Context, file *os.File, most uint64) error {
	ours, machines, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe for dump: %w", err)
	}
	written := make(chan error, 1)
	go func() {
		err := copyDump(file, ours, most)
		_ = ours.Close() // QEMU's next write fails
		written <- err
	}()
	err = vm.askDump(ctx, machines)
	if err != nil {
		_ = ours.Close() // QEMU may still have the pipe, and keep it
	}
	select {
	case writeErr := <-written:
		if errors.Is(writeErr, os.ErrClosed) && err != nil {
			return err
		}
		return errors.Join(writeErr, err)
	case <-ctx.Done(): // the disk hangs, or QEMU keeps the pipe
		_ = ours.Close()
		return cmp.Or(err, fmt.Errorf("write dump: %w", context.Cause(ctx)))
	}
}

// askDump has QEMU write the memory to the pipe, which it closes.
func (vm *VM) askDump(ctx context.Context, pipe *os.File) error {
	const fd = "dump"
	err := vm.mon.GetFD(ctx, fd, pipe)
	if err = errors.Join(err, pipe.Close()); err != nil {
		return fmt.Errorf("pass dump to QEMU: %w", err)
	}
	// qapi/dump.json, dump-guest-memory. Without "detach" the answer comes
	// when all is written.
	args := map[string]any{"paging": vm.spec.PanicDump.Paging, "protocol": "fd:" + fd}
	if err := vm.mon.Execute(ctx, "dump-guest-memory", args, nil); err != nil {
		return fmt.Errorf("dump guest memory: %w", err)
	}
	return nil
}

// copyDump copies until from ends. What is longer than most is not a dump.
func copyDump(to io.Writer, from io.Reader, most uint64) error {
	n, err := io.Copy(to, io.LimitReader(from, int64(most)))
	if err == nil && uint64(n) == most {
		err = fmt.Errorf("it has %d bytes or more, want less: %w", most, errdefs.ErrResourceExhausted)
	}
	if err != nil {
		return fmt.Errorf("write dump: %w", err)
	}
	return nil
}

// makeDump makes the file for a dump of that size in bytes. The directory may be on a file
// system that hangs.
func makeDump(ctx context.Context, dir string, size uint64) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, dumpFileWait)
	defer cancel()
	file, err := intime.Call(ctx, func() (*os.File, error) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make directory for dump: %w", err)
		}
		if err := roomFor(dir, size); err != nil {
			return nil, err
		}
		file, err := os.OpenFile(filepath.Join(dir, time.Now().UTC().Format(dumpName)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, fmt.Errorf("make dump: %w", err)
		}
		return file, nil
	}, func(file *os.File) { _ = endDump(context.Background(), file, false) })
	if errors.Is(err, intime.ErrUnanswered) || errdefs.IsUnavailable(err) {
		return nil, fmt.Errorf("make dump in %s: %w", dir, err)
	}
	return file, err
}

// endDump closes the file, and removes it if it is incomplete.
func endDump(ctx context.Context, file *os.File, complete bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dumpFileWait)
	defer cancel()
	err := intime.Do(ctx, func() error {
		err := file.Close()
		if err != nil || !complete {
			err = errors.Join(err, os.Remove(file.Name()))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("close dump: %w", err)
	}
	return nil
}

// roomFor checks in advance that a file system has room for that many bytes.
func roomFor(dir string, size uint64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("find room for dump: %w", err)
	}
	if free := fs.Bavail * uint64(fs.Bsize); free <= size {
		return fmt.Errorf("no room for dump of %d MiB: %s has %d MiB left", size/mib, dir, free/mib)
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
