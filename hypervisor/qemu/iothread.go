package qemu

import (
	"fmt"

	"github.com/katabox/katabox/hypervisor"
)

// diskThread begins the ID of a thread for disks, followed by its number. No
// caller's device can have such an ID (deviceID).
const diskThread = "pod.iothread."

// diskThreads returns the threads, which exist from the start: they cost
// nothing while no disk uses them.
func diskThreads(spec hypervisor.Spec) []string {
	var args []string
	for i := range spec.DiskThreads {
		args = append(args, "-object", fmt.Sprintf("iothread,id=%s%d", diskThread, i))
	}
	return args
}

// onThread assigns a thread to a device that drives disks, if the machine has
// threads. There is one SCSI controller; disks that are devices themselves are
// spread over the threads by their slot.
func (vm *VM) onThread(device map[string]any, at int) {
	n := int(vm.spec.DiskThreads)
	if driver := device["driver"]; n > 0 && (driver == ModelBlock || driver == ModelSCSI) {
		device["iothread"] = fmt.Sprintf("%s%d", diskThread, at%n)
	}
}
