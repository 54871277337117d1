package guest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// onlineCPUs brings CPUs online, the lowest numbers first, until want of them
// are online, and returns how many are. One that the kernel refuses is not
// counted and is in the error. A machine may have more CPUs than the host wants
// used.
//
// A CPU's file "online" is missing if it cannot be taken offline, as with the
// first one (Documentation/core-api/cpu_hotplug.rst).
func (r *Resources) onlineCPUs(want uint32) (inUse uint32, err error) {
	dirs, err := filepath.Glob(filepath.Join(r.sys, "devices/system/cpu/cpu[0-9]*"))
	if err != nil {
		return 0, err
	}
	slices.SortFunc(dirs, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	var idle []string
	for _, dir := range dirs {
		text, err := os.ReadFile(filepath.Join(dir, "online"))
		if errors.Is(err, os.ErrNotExist) || strings.TrimSpace(string(text)) == "1" {
			inUse++
		} else {
			idle = append(idle, dir)
		}
	}
	var errs []error
	for _, dir := range idle[:min(len(idle), int(max(want, inUse)-inUse))] {
		if err := setOnline(filepath.Join(dir, "online"), "0", "1"); err != nil {
			errs = append(errs, fmt.Errorf("online %s: %w", filepath.Base(dir), err))
			continue
		}
		inUse++
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
