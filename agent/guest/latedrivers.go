package guest

import "errors"

// lateDrivers are the drivers of devices that no container waits for, by their
// numbers as the virtio bus shows them (virtio 1.2, section 5, "Device Types").
var lateDrivers = []struct{ kind, module string }{
	{"0x0004", "virtio_rng"},
	{"0x0005", "virtio_balloon"},
}

// LoadLateDrivers loads the drivers of those devices that the machine has. It
// is called when the pod's first container runs: each takes a few milliseconds
// of a machine without KVM, and the kernel's own random numbers do not wait for
// the device (the CPU has an instruction for them).
func (r *Resources) LoadLateDrivers() error {
	var errs []error
	for _, d := range lateDrivers {
		if r.hasVirtio(d.kind) {
			errs = append(errs, r.modules.Demand(d.module))
		}
	}
	return errors.Join(errs...)
}
