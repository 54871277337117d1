package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// lateDrivers are the drivers of devices for which no container waits, by their
// device types as the virtio bus shows them (virtio 1.2, section 5, "Device
// Types").
var lateDrivers = []struct{ kind, module string }{
	{"0x0004", "virtio_rng"},
	{"0x0005", "virtio_balloon"},
}

// LoadLateDrivers loads the drivers of those devices that the machine has, and
// binds the devices that PreloadLateDrivers left alone. It is called when the
// pod's first container runs: without KVM each takes a few milliseconds, and the
// kernel's random number generator does not need the device (the CPU has an
// instruction).
func (r *Resources) LoadLateDrivers() error {
	var errs []error
	for _, d := range lateDrivers {
		devices := r.virtioDevices(d.kind)
		if len(devices) == 0 {
			continue
		}
		if err := r.modules.Demand(d.module); err != nil {
			errs = append(errs, err)
			continue
		}
		for _, device := range devices {
			errs = append(errs, r.bindVirtio(device))
		}
	}
	return errors.Join(errs...)
}

// PreloadLateDrivers loads the same drivers, but leaves the devices without them:
// a driver would have the host's entropy in its buffers, and the machine is about
// to be saved. No device may be added meanwhile.
func (r *Resources) PreloadLateDrivers() (err error) {
	// Documentation/ABI/testing/sysfs-bus, and drivers/base/bus.c.
	autoprobe := filepath.Join(r.sys, "bus/virtio/drivers_autoprobe")
	if err := writeFile(autoprobe, "0"); err != nil {
		return fmt.Errorf("keep drivers from devices: %w", err)
	}
	defer func() {
		if on := writeFile(autoprobe, "1"); on != nil {
			err = errors.Join(err, fmt.Errorf("let drivers have devices again: %w", on))
		}
	}()
	var errs []error
	for _, d := range lateDrivers {
		if len(r.virtioDevices(d.kind)) > 0 {
			errs = append(errs, r.modules.Demand(d.module))
		}
	}
	return errors.Join(errs...)
}

// bindVirtio gives a device its driver, unless it has it.
func (r *Resources) bindVirtio(device string) error {
	_, err := os.Stat(filepath.Join(r.sys, "bus/virtio/devices", device, "driver"))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := writeFile(filepath.Join(r.sys, "bus/virtio/drivers_probe"), device); err != nil {
		return fmt.Errorf("find driver of %s: %w", device, err)
	}
	return nil
}

// virtioDevices returns the names of the virtio devices of a type.
func (r *Resources) virtioDevices(kind string) (names []string) {
	files, err := filepath.Glob(filepath.Join(r.sys, "bus/virtio/devices/*/device"))
	if err != nil {
		return nil
	}
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == kind {
			names = append(names, filepath.Base(filepath.Dir(file)))
		}
	}
	return names
}
