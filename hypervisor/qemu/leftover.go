package qemu

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

const (
	removeFD    = "remove-fd"
	blockdevDel = "blockdev-del"
	objectDel   = "object-del"
	// nodeGrace is how long a block node or an object may stay in use after its
	// device is gone: QEMU releases it a little later (RCU), without an event.
	nodeGrace = 5 * time.Second
	// nodeRepeat is the time between two tries to remove it.
	nodeRepeat = 2 * time.Millisecond
)

// newSet returns a number that no descriptor set of this machine has had: QEMU
// finds a removed descriptor in its set until it has closed it.
func (vm *VM) newSet() int {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	vm.sets++
	return vm.sets
}

// repeatLater records steps to repeat when the machine runs: only then does
// QEMU 7.2 close a descriptor that was removed from its set (monitor/fds.c,
// monitor_fdset_cleanup).
func (vm *VM) repeatLater(steps []command) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	if vm.resumed {
		return
	}
	for _, step := range steps {
		if step.name == removeFD {
			vm.later = append(vm.later, step)
		}
	}
}

// takeLater returns the steps recorded so far; there will be no others.
func (vm *VM) takeLater() []command {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	steps := vm.later
	vm.later, vm.resumed = nil, true
	return steps
}

// run carries out a step.
func (vm *VM) run(ctx context.Context, c command) error {
	err := vm.mon.Execute(ctx, c.name, c.args, nil)
	if c.name != blockdevDel && c.name != objectDel || !inUse(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, nodeGrace)
	defer cancel()
	again := time.NewTicker(nodeRepeat)
	defer again.Stop()
	for inUse(err) {
		select {
		case <-again.C:
			err = vm.mon.Execute(ctx, c.name, c.args, nil)
		case <-ctx.Done():
			return err
		}
	}
	return err
}

// inUse reports whether err is QEMU's refusal to remove a block node or an
// object that is in use (blockdev.c, qmp_blockdev_del; qom/object_interfaces.c,
// user_creatable_del). It has no error class. Memory of a device is "in use" up to
// QEMU 10.0, and "mapped" in 11.1.
func inUse(err error) bool {
	var e *qmp.Error
	return errors.As(err, &e) && (strings.Contains(e.Desc, "is in use") || strings.Contains(e.Desc, "is mapped"))
}
