package container

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Device is a device of the guest that a container gets as a device node.
type Device struct {
	// Type is "b" for a block device, "c" for a character device.
	Type string
	// Common: the guest's own node is never changed.
	Common bool
	// Mounted: the guest's own node is mounted at Path.
	Mounted bool
	// Path is the node's place in the container.
	Path string
	// Mode is the node's permission bits.
	Mode     uint32
	UID, GID uint32
	// Access is what the device cgroup allows: some of "r", "w" and "m".
	Access string
	// Node is the path of the guest's node, Major and Minor its device number.
	Node         string
	Major, Minor uint32
}

// maxMode is the largest mode without a file type (inode(7)).
const maxMode = 0o7777

// CheckDevice validates a device, except for its Node and number. Its error is an
// errdefs.ErrInvalidArgument.
func CheckDevice(d Device) error {
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

// HasGuestNodes reports whether a container's devices are the guest's own nodes (see
// AddDevice).
func HasGuestNodes(spec *specs.Spec) bool {
	return spec.Linux != nil && slices.ContainsFunc(spec.Linux.Namespaces, isUser)
}

// AddDevice adds a device to a container's spec. It replaces a device of the spec at
// the same path, with the rules for its number, which means another device in the
// guest, or none.
//
// A container in a user namespace cannot have its own node: it gets the
// guest's, as one with a Mounted device does, with the mode and owner of d. If several
// such containers share a device, the last one sets them.
func AddDevice(spec *specs.Spec, d Device) error {
	if err := CheckDevice(d); err != nil {
		return err
	}
	if spec.Linux == nil {
		spec.Linux = &specs.Linux{}
	}
	if spec.Linux.Resources == nil {
		spec.Linux.Resources = &specs.LinuxResources{}
	}
	l := spec.Linux
	dropDevice(l, d.Path)
	if d.Mounted || HasGuestNodes(spec) {
		if err := ownNode(spec, d); err != nil {
			return fmt.Errorf("device %s: %w", d.Path, err)
		}
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: d.Path, Type: "bind", Source: d.Node, Options: []string{"bind", "nosuid", "noexec"}})
	} else {
		mode := fs.FileMode(d.Mode)
		l.Devices = append(l.Devices, specs.LinuxDevice{
			Path: d.Path, Type: d.Type, Major: int64(d.Major), Minor: int64(d.Minor), FileMode: &mode, UID: &d.UID, GID: &d.GID,
		})
	}
	major, minor := int64(d.Major), int64(d.Minor)
	l.Resources.Devices = append(l.Resources.Devices,
		specs.LinuxDeviceCgroup{Allow: true, Type: d.Type, Major: &major, Minor: &minor, Access: d.Access})
	return nil
}

// dropDevice removes the spec's devices at a path.
func dropDevice(l *specs.Linux, at string) {
	isIt := func(d specs.LinuxDevice) bool { return path.Clean(d.Path) == at }
	for _, old := range l.Devices {
		if isIt(old) {
			l.Resources.Devices = slices.DeleteFunc(l.Resources.Devices, func(r specs.LinuxDeviceCgroup) bool { return allows(r, old) })
		}
	}
	l.Devices = slices.DeleteFunc(l.Devices, isIt)
}

// ownNode gives the guest's node the owner and mode of the container's.
func ownNode(spec *specs.Spec, d Device) (err error) {
	if d.Common {
		return nil
	}
	uid, gid := int(d.UID), int(d.GID)
	if HasGuestNodes(spec) {
		if uid, err = inGuest("user", spec.Linux.UIDMappings, d.UID); err != nil {
			return err
		}
		if gid, err = inGuest("group", spec.Linux.GIDMappings, d.GID); err != nil {
			return err
		}
	}
	if err := os.Lchown(d.Node, uid, gid); err != nil {
		return fmt.Errorf("chown the guest's node: %w", err)
	}
	if err := os.Chmod(d.Node, fs.FileMode(d.Mode)); err != nil {
		return fmt.Errorf("set mode of the guest's node: %w", err)
	}
	return nil
}

// inGuest maps an id of the container to the guest's.
func inGuest(kind string, mappings []specs.LinuxIDMapping, id uint32) (int, error) {
	for _, m := range mappings {
		if id >= m.ContainerID && id-m.ContainerID < m.Size {
			return int(m.HostID) + int(id-m.ContainerID), nil
		}
	}
	return 0, fmt.Errorf("%s %d is not one of its user namespace: %w", kind, id, errdefs.ErrInvalidArgument)
}

// allows reports whether a rule is about this device and no other.
func allows(r specs.LinuxDeviceCgroup, d specs.LinuxDevice) bool {
	return r.Allow && r.Type == d.Type && r.Major != nil && r.Minor != nil && *r.Major == d.Major && *r.Minor == d.Minor
}
