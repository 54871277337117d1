package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// onlineCPUs brings every CPU that the machine has into use and returns how
// many are. One that the kernel refuses is not counted and is in the error.
//
// A CPU's file "online" is missing when it cannot be taken out of use, as the
// first one's (Documentation/core-api/cpu_hotplug.rst).
func (r *Resources) onlineCPUs() (inUse uint32, err error) {
	dirs, err := filepath.Glob(filepath.Join(r.sys, "devices/system/cpu/cpu[0-9]*"))
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, dir := range dirs {
		err := setOnline(filepath.Join(dir, "online"), "0", "1")
		switch {
		case err == nil || errors.Is(err, os.ErrNotExist):
			inUse++
		default:
			errs = append(errs, fmt.Errorf("bring %s into use: %w", filepath.Base(dir), err))
		}
	}
	return inUse, errors.Join(errs...)
}

// setOnline writes on to a file of sysfs that reads off.
func setOnline(file, off, on string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	switch state := strings.TrimSpace(string(text)); state {
	case on:
		return nil
	case off:
		return writeFile(file, on)
	default:
		return fmt.Errorf("it is %.40q, want %q or %q", state, on, off)
	}
}
