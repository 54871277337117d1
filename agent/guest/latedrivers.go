package guest

import "errors"

// lateDrivers are the drivers of devices for which no container waits, by their
// device types as the virtio bus shows them (virtio 1.2, section 5, "Device
// Types").
var lateDrivers = []struct{ kind, module string }{
	{"0x0004", "virtio_rng"},
	{"0x0005", "virtio_balloon"},
}

// LoadLateDrivers loads the drivers of those devices that the machine has. It
// is called when the pod's first container runs: without KVM each takes a few
// milliseconds, and the kernel's random number generator does not need the
// device (the CPU has an instruction).
func (r *Resources) LoadLateDrivers() error {
	var errs []error
	for _, d := range lateDrivers {
		if r.hasVirtio(d.kind) {
			errs = append(errs, r.modules.Demand(d.module))
		}
	}
	return errors.Join(errs...)
}
