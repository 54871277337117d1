package bundle

import (
	"fmt"
	"path"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/api"
)

// CharDevice is a character device of the guest that a container gets.
type CharDevice struct {
	Node
	// Name is one of api.CharDevices.
	Name string
}

// CharDevices lists the character devices that the spec gives its container
// and that a guest can have. Any other is an errdefs.ErrInvalidArgument that
// names it: a host's hardware is not in the guest. So is a device of a type that
// the specification does not know.
//
// The spec of a container that may use every device (privileged) lists all of
// the host's: those that a guest cannot have are left out, and the rest are
// Optional. If it does not list them (privileged_without_host_devices), the
// container gets what a guest has. Of several devices with the same path the first
// counts, as with runc.
func CharDevices(spec *specs.Spec) ([]CharDevice, error) {
	return hostDevices{sys: "/sys", dev: "/dev"}.chars(spec)
}

func (h hostDevices) chars(spec *specs.Spec) ([]CharDevice, error) {
	var devices []CharDevice
	rules := deviceRules(spec)
	privileged := allowsAll(rules)
	for _, d := range spec.Linux.Devices {
		switch d.Type {
		case "c", "u": // the same since Linux 2.0 (mknod(1))
		case "b", "p":
			continue
		default:
			return nil, fmt.Errorf("device %s is of type %q, want c, u, b or p: %w", d.Path, d.Type, errdefs.ErrInvalidArgument)
		}
		if slices.ContainsFunc(devices, func(other CharDevice) bool { return other.Path == d.Path }) {
			continue
		}
		c := CharDevice{nodeOf(d), h.charName(d)}
		c.Optional = privileged
		if !privileged {
			c.Access = accessOf(d, "c", rules)
		}
		if c.Access == "" || c.Name == "" && privileged {
			continue
		}
		if c.Name == "" {
			return nil, fmt.Errorf("device %s, character device %d:%d: it is one of the host's, which a guest does not have: %w",
				d.Path, d.Major, d.Minor, errdefs.ErrInvalidArgument)
		}
		devices = append(devices, c)
	}
	if privileged && !listsAll(spec) {
		devices = withGuests(devices)
	}
	return devices, nil
}

// withGuests adds the devices of the guest that a list of the host's would have, at
// the paths that are free.
func withGuests(devices []CharDevice) []CharDevice {
	for _, known := range api.CharDevices {
		c := CharDevice{Node{Path: path.Join("/dev", known.Name), Mode: known.Mode, Access: allAccess, Optional: true}, known.Name}
		if known.Mode != 0 && !slices.ContainsFunc(devices, func(other CharDevice) bool { return other.Path == c.Path }) {
			devices = append(devices, c)
		}
	}
	return devices
}

// charName is the name of the device in api.CharDevices, or empty.
func (h hostDevices) charName(d specs.LinuxDevice) string {
	name, err := h.kernelName("char", d)
	for _, known := range api.CharDevices {
		switch {
		case known.Minor == api.Dynamic:
			if err == nil && known.Name == name {
				return name
			}
		case known.Major == d.Major && known.Minor == d.Minor:
			return known.Name // also where the host lacks the driver
		}
	}
	return ""
}
