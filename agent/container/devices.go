package container

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// BlockDevice is a disk of the guest's that a container gets as a device node.
type BlockDevice struct {
	// Path is the node's place in the container.
	Path string
	// Mode is the node's permission bits.
	Mode     uint32
	UID, GID uint32
	// Access is what the device cgroup allows: some of "r", "w" and "m".
	Access string
	// Node is the guest's own node of the disk, Major and Minor its number.
	Node         string
	Major, Minor uint32
}

// maxMode is the largest mode without a file type (inode(7)).
const maxMode = 0o7777

// CheckDevice says what is wrong with a device, as errdefs.ErrInvalidArgument.
// Node and number are not looked at.
func CheckDevice(d BlockDevice) error {
	switch {
	case !path.IsAbs(d.Path) || path.Clean(d.Path) != d.Path || d.Path == "/":
		return fmt.Errorf("path of a device is %.200q, want a clean absolute one: %w", d.Path, errdefs.ErrInvalidArgument)
	case d.Mode > maxMode:
		return fmt.Errorf("mode of device %s is %#o, want permission bits: %w", d.Path, d.Mode, errdefs.ErrInvalidArgument)
	case d.Access == "" || strings.Trim(d.Access, "rwm") != "":
		return fmt.Errorf("access to device %s is %.40q, want some of \"r\", \"w\" and \"m\": %w", d.Path, d.Access, errdefs.ErrInvalidArgument)
	}
	return nil
}

// AddDevice gives a container a device. A device of the spec's at the same
// path is replaced, and what its number was allowed goes with it: here it is
// another device's, if any.
func AddDevice(spec *specs.Spec, d BlockDevice) error {
	if err := CheckDevice(d); err != nil {
		return err
	}
	if spec.Linux == nil {
		spec.Linux = &specs.Linux{}
	}
	l := spec.Linux
	if l.Resources == nil {
		l.Resources = &specs.LinuxResources{}
	}
	for _, old := range l.Devices {
		if path.Clean(old.Path) == d.Path {
			l.Resources.Devices = slices.DeleteFunc(l.Resources.Devices, func(r specs.LinuxDeviceCgroup) bool { return allows(r, old) })
		}
	}
	major, minor, mode := int64(d.Major), int64(d.Minor), fs.FileMode(d.Mode)
	l.Devices = append(
		slices.DeleteFunc(l.Devices, func(old specs.LinuxDevice) bool { return path.Clean(old.Path) == d.Path }),
		specs.LinuxDevice{Path: d.Path, Type: "b", Major: major, Minor: minor, FileMode: &mode, UID: &d.UID, GID: &d.GID},
	)
	l.Resources.Devices = append(l.Resources.Devices,
		specs.LinuxDeviceCgroup{Allow: true, Type: "b", Major: &major, Minor: &minor, Access: d.Access})
	return nil
}

// allows tells whether a rule is about one device alone, and that one.
func allows(r specs.LinuxDeviceCgroup, d specs.LinuxDevice) bool {
	return r.Allow && r.Type == d.Type && r.Major != nil && r.Minor != nil && *r.Major == d.Major && *r.Minor == d.Minor
}
