package qemu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/child"
	"github.com/katabox/katabox/hypervisor/procmem"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
	"github.com/katabox/katabox/internal/ctxmutex"
)

const (
	// consoleBytes is how much of the end of the console is kept.
	consoleBytes = 16 << 10
	// quitGrace is how long QEMU may take to end after the command quit.
	quitGrace = 200 * time.Millisecond
	// exitGrace is how long it may take to end by itself: after the guest
	// powered off QEMU shuts devices down, and a busy host is slow.
	exitGrace = 2 * time.Second
)

// VM is a running QEMU.
type VM struct {
	id      string
	proc    *child.Process
	mon     *qmp.Monitor
	console *child.Tail
	done    chan struct{} // closed after err is set
	started func()        // called after each Resume
	ticks   chan struct{} // closed when the guest's time has begun
	spec    hypervisor.Spec
	// template is the file of which the boot memory is a private mapping.
	template procmem.FileID
	tscKHz   uint64         // hypervisor.Layout's
	sizing   ctxmutex.Mutex // held by SetVCPUs and SetMemoryMiB
	allowed  atomic.Uint32  // CPUs that SetVCPUs gave the guest, with TCG
	// moduleLeft is set while QEMU may have the next memory module's memory without
	// the module; guarded by sizing.
	moduleLeft bool

	mu       sync.Mutex
	stopping bool
	shutdown *shutdown          // the guest's end, as QEMU announced it
	devices  map[string]*device // by the IDs that are attached or being attached
	dumped   chan struct{}      // closed when the memory was saved; nil without a dump
	panicked string             // path of the dump, once the guest has panicked
	err      error

	controller *attempt  // to attach it; nil for none
	nextTarget int       // the place on scsiBus to try first
	hadDisk    bool      // a disk was attached at some time
	virtioMem  bool      // it is attached; guarded by sizing
	sets       int       // number of descriptor sets so far
	resumed    bool      // Resume has succeeded
	later      []command // to be done after Resume
}

// errDied is an end that was not requested.
var errDied = errors.New("virtual machine process died")

// shutdown is the data of QEMU's SHUTDOWN event (qapi/run-state.json).
type shutdown struct {
	guest  bool
	reason string
}

var _ hypervisor.VM = (*VM)(nil)

// newVM makes the VM for a QEMU whose handshake is done.
func newVM(ctx context.Context, spec hypervisor.Spec, proc *child.Process, mon *qmp.Monitor, console *child.Tail) *VM {
	vm := &VM{
		id:      spec.ID,
		spec:    spec,
		proc:    proc,
		mon:     mon,
		console: console,
		done:    make(chan struct{}),
		ticks:   make(chan struct{}),
		sizing:  ctxmutex.New(),
		devices: make(map[string]*device),
	}
	vm.started = sync.OnceFunc(func() {
		time.AfterFunc(firstTick, func() { close(vm.ticks) })
	})
	// The watch lasts as long as the machine, not as long as the launch.
	ctx = context.WithoutCancel(ctx)
	go vm.watch(ctx, mon.Subscribe(ctx).C())
	return vm
}

// Done implements hypervisor.VM.
func (vm *VM) Done() <-chan struct{} { return vm.done }

// Err implements hypervisor.VM.
func (vm *VM) Err() error {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return vm.err
}

// PID implements hypervisor.VM.
func (vm *VM) PID() int { return vm.proc.Pid() }

// owner is a machine with private memory.
type owner struct {
	*child.Process
	jail hypervisor.Jail
}

// User implements hypervisor.MemoryOwner.
func (o owner) User() (uid, gid uint32) { return o.jail.UID, o.jail.GID }

// MemoryOwner is for hypervisor.OwnerOf.
func (vm *VM) MemoryOwner() hypervisor.MemoryOwner {
	if !isPrivate(vm.spec) {
		return nil
	}
	return owner{vm.proc, *vm.spec.Jail}
}

// ConsoleTail implements hypervisor.VM.
func (vm *VM) ConsoleTail() string { return vm.console.String() }

// Version implements hypervisor.Snapshotter.
func (vm *VM) Version() string { return vm.mon.Version().String() }

// Resume implements hypervisor.VM.
func (vm *VM) Resume(ctx context.Context) error {
	if err := vm.mon.Execute(ctx, "cont", nil, nil); err != nil {
		return vm.explain(ctx, "resume virtual machine", err)
	}
	vm.clean(ctx, vm.takeLater())
	vm.started()
	return nil
}

// Stop implements hypervisor.VM.
func (vm *VM) Stop(ctx context.Context) error {
	vm.mu.Lock()
	vm.stopping = true
	vm.mu.Unlock()
	vm.awaitDump(ctx)
	if vm.mustQuit() {
		vm.quit(ctx)
	}
	if err := vm.proc.Kill(ctx); err != nil {
		return fmt.Errorf("stop virtual machine %s: %w", vm.id, err)
	}
	select {
	case <-vm.done: // follows the process's end without blocking
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop virtual machine %s: %w", vm.id, context.Cause(ctx))
	}
}

// mustQuit reports whether QEMU could still have something to write: what a
// guest has written to a disk may be in its queues. Without disks a SIGKILL loses
// nothing, and the pod's end does not wait while the quit command stops the vCPUs
// and takes the devices apart.
func (vm *VM) mustQuit() bool {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return vm.hadDisk
}

// quit asks QEMU to end and waits briefly.
func (vm *VM) quit(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, quitGrace)
	defer cancel()
	if err := vm.mon.Execute(ctx, "quit", nil, nil); err != nil && !errors.Is(err, qmp.ErrClosed) {
		log.G(ctx).WithField("sandbox", vm.id).WithError(err).Debug("QEMU did not accept the quit command")
	}
	select {
	case <-vm.proc.Done():
	case <-ctx.Done():
	}
}

// explain adds to a failed command's error that the machine has ended, if so. A
// lost QMP connection means that the machine is about to end (watch).
func (vm *VM) explain(ctx context.Context, what string, err error) error {
	if errors.Is(err, qmp.ErrClosed) {
		select {
		case <-vm.done:
			err = vm.Err()
		case <-time.After(2 * exitGrace):
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("%s %s: %w", what, vm.id, err)
}
