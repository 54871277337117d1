package pci

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
)

// Root is the directory of the machine's root bus below sysfs: q35 has one
// domain and its root bus is 0.
const Root = "devices/pci0000:00"

// maxDepth is how many PCI buses may be nested.
const maxDepth = 8

// slot is a slot's number; a bus has 32 of them.
var slot = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[01][0-9a-f]$`)
})

// function is a device's directory: domain, bus, slot, function
// (Documentation/ABI/testing/sysfs-bus-pci).
var function = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:([0-9a-f]{2})\.0$`)
})

// PathForm describes a valid path.
const PathForm = `slots of two hexadecimal digits up to 1f, as "01/1e"`

// ValidPath reports whether path is a PCI path: the slots from the root bus
// down to the device.
func ValidPath(path string) bool {
	slots := strings.Split(path, "/")
	valid := len(slots) <= maxDepth
	for _, s := range slots {
		valid = valid && slot().MatchString(s)
	}
	return valid
}

// Device returns the directory of the device at path, where root is that of
// the root bus. A part of the path that is missing is an errdefs.ErrNotFound
// that says which.
func Device(root, path string) (dir string, err error) {
	dir = root
	for slot := range strings.SplitSeq(path, "/") {
		if dir, err = inSlot(dir, slot); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// inSlot finds the device in a slot of the bus that is behind the bridge with
// the directory dir.
func inSlot(dir, slot string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("inspect PCI bus: %w", err)
	}
	for _, entry := range entries {
		if m := function().FindStringSubmatch(entry.Name()); m != nil && m[1] == slot {
			return filepath.Join(dir, entry.Name()), nil
		}
	}
	return "", fmt.Errorf("no device in slot %s behind %s: %w", slot, filepath.Base(dir), errdefs.ErrNotFound)
}
