package qemu

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/child"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

// watch follows the machine to its end and then records why it ended. It owns
// the QMP connection.
func (vm *VM) watch(ctx context.Context, events <-chan qmp.Event) {
	logger := log.G(ctx).WithField("sandbox", vm.id)
	var overdue <-chan time.Time
	disks := failing{}
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				// Without QMP QEMU can no longer be controlled.
				events, overdue = nil, time.After(exitGrace)
				continue
			}
			logger.WithField("event", ev.Event).Debug("QEMU event")
			disks.note(ctx, vm.id, ev)
			if vm.isPanic(ev) {
				go vm.savePanic(ctx) // finish waits for it
			}
			if vm.note(ev) {
				overdue = time.After(exitGrace)
			}
		case <-overdue:
			logger.Warn("QEMU does not exit by itself, killing it")
			if err := vm.proc.Signal(unix.SIGKILL); err != nil {
				logger.WithError(err).Error("cannot kill QEMU")
			}
			overdue = nil
		case <-vm.proc.Done():
			vm.finish(events)
			return
		}
	}
}

// maxWord bounds a word of QEMU's in an event, such as the reason of a shutdown, in bytes.
const maxWord = 64

// textOf returns a text of an event, safe to log; "" if it is none.
func textOf(ev qmp.Event, key string) string {
	text, _ := ev.Data[key].(string)
	return child.Printable(text[:min(len(text), maxWord)])
}

// note records a SHUTDOWN event, after which QEMU exits.
func (vm *VM) note(ev qmp.Event) bool {
	if ev.Event != "SHUTDOWN" {
		return false
	}
	guest, _ := ev.Data["guest"].(bool)
	vm.mu.Lock()
	defer vm.mu.Unlock()
	vm.shutdown = &shutdown{guest: guest, reason: textOf(ev, "reason")}
	return true
}

// finish reads the events that QEMU sent before its process ended, decides why
// it ended, and closes Done.
func (vm *VM) finish(events <-chan qmp.Event) {
	select {
	case <-vm.mon.Done(): // end of file: QEMU's end is closed
	case <-time.After(exitGrace): // another process must hold it open
	}
	_ = vm.mon.Disconnect()
	if events != nil {
		for ev := range events {
			vm.note(ev)
		}
	}
	if vm.dumped != nil {
		<-vm.dumped // QEMU can no longer answer its command
	}
	vm.mu.Lock()
	vm.err = vm.verdict()
	vm.mu.Unlock()
	close(vm.done)
}

// verdict returns why the machine ended. The caller holds mu.
func (vm *VM) verdict() error {
	switch {
	case vm.panicked != "":
		return fmt.Errorf("%w: its kernel panicked, its memory is %s", hypervisor.ErrPowerOff, vm.panicked)
	case vm.shutdown != nil && vm.shutdown.guest:
		return fmt.Errorf("%w (%s)", hypervisor.ErrPowerOff, vm.shutdown.reason)
	case vm.stopping:
		return hypervisor.ErrStopped
	case vm.shutdown != nil:
		return exitError(vm.proc, fmt.Errorf("virtual machine was shut down from outside (%s)", vm.shutdown.reason))
	}
	return exitError(vm.proc, errDied)
}
