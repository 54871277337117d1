package qemu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/katabox/katabox/hypervisor"
)

// cpuPrefix begins the ID of a plugged CPU, followed by its socket. No caller's
// device can have such an ID (deviceID).
const cpuPrefix = "pod.cpu."

// peripheral is QEMU's path of devices added by device_add.
const peripheral = "/machine/peripheral/"

// cpuPlace is a place for a CPU (qapi/machine.json, HotpluggableCPU).
type cpuPlace struct {
	Type  string         `json:"type"`
	Props map[string]int `json:"props"`
	// Path is that of the CPU in this place; empty if there is none.
	Path string `json:"qom-path"`
}

// SetVCPUs implements hypervisor.CPUPlugger. Linux takes an unplugged CPU
// offline by itself.
//
// With TCG no CPU is hot-plugged: guests were seen to hang when one was plugged
// while they ran, and QEMU 7.2 to corrupt its heap when one was unplugged
// ("double free or corruption" at the next plug, every time). All CPUs exist
// from the start, those after the first Spec.VCPUs unused, and only the number
// that the guest may bring online is recorded. It never decreases: a guest uses
// a CPU that it was given.
func (vm *VM) SetVCPUs(ctx context.Context, n uint32) (uint32, error) {
	n = min(max(n, vm.spec.VCPUs), max(vm.spec.VCPUs, vm.spec.MaxVCPUs))
	if vm.spec.Accel == hypervisor.AccelTCG {
		given := func(context.Context) (uint32, error) { return vm.given(), nil }
		return resize(ctx, vm, "set number of CPUs of virtual machine", func(context.Context) error {
			vm.allowed.Store(max(n, vm.given()))
			return nil
		}, given)
	}
	return resize(ctx, vm, "set number of CPUs of virtual machine", func(ctx context.Context) error {
		return vm.setVCPUs(ctx, int(n))
	}, vm.countCPUs)
}

// given returns how many CPUs the guest of a TCG machine may use.
func (vm *VM) given() uint32 { return max(vm.allowed.Load(), vm.spec.VCPUs) }

func (vm *VM) setVCPUs(ctx context.Context, n int) error {
	there, free, err := vm.cpus(ctx)
	if err != nil {
		return err
	}
	if len(there) > n {
		return vm.unplugCPUs(ctx, there, len(there)-n)
	}
	for _, c := range free[:min(len(free), n-len(there))] {
		if err := vm.plugCPU(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// unplugCPUs unplugs n of the CPUs, as far as the guest releases them.
func (vm *VM) unplugCPUs(ctx context.Context, there []cpuPlace, n int) error {
	slices.Reverse(there) // the last one plugged is unplugged first
	for _, c := range there[:n] {
		id, ours := strings.CutPrefix(c.Path, peripheral)
		if !ours {
			return nil // the remaining ones are the boot CPUs
		}
		// If this one stays, those below it are not the last plugged.
		if kept, err := vm.unplugCPU(ctx, id); kept || err != nil {
			return err
		}
	}
	return nil
}

// unplugCPU unplugs a CPU; kept reports that the guest has not released it when
// ctx ends.
func (vm *VM) unplugCPU(ctx context.Context, id string) (kept bool, err error) {
	err = vm.unplug(ctx, id)
	if err == nil || !errors.Is(err, errGuestKeeps) && ctx.Err() == nil {
		return false, err
	}
	return true, nil
}

func (vm *VM) plugCPU(ctx context.Context, c cpuPlace) error {
	args := map[string]any{"driver": c.Type, "id": fmt.Sprintf("%s%d", cpuPrefix, c.Props["socket-id"])}
	for k, v := range c.Props {
		args[k] = v
	}
	return vm.mon.Execute(ctx, "device_add", args, nil)
}

// cpus returns the existing CPUs and the free places, ordered by socket, the
// order in which CPUs are plugged.
func (vm *VM) cpus(ctx context.Context) (there, free []cpuPlace, err error) {
	var all []cpuPlace
	if err := vm.mon.Execute(ctx, "query-hotpluggable-cpus", nil, &all); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(all, func(a, b cpuPlace) int { return cmp.Compare(a.Props["socket-id"], b.Props["socket-id"]) })
	for _, c := range all {
		if c.Path != "" {
			there = append(there, c)
		} else {
			free = append(free, c)
		}
	}
	return there, free, nil
}

func (vm *VM) countCPUs(ctx context.Context) (uint32, error) {
	there, _, err := vm.cpus(ctx)
	return uint32(len(there)), err
}
