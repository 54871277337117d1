package guestspec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Check returns the error that Filter would return: errdefs.ErrInvalidArgument,
// with the field's name, for what a guest cannot have and the container could
// not work without.
func Check(spec *specs.Spec, rules Rules) error {
	if err := refuse(spec, rules); err != nil {
		return err
	}
	if err := checkNamespaces(spec); err != nil {
		return err
	}
	_, err := lostNamespaces(spec, rules)
	return err
}

// refuse does Check's work for all fields except the namespaces.
func refuse(spec *specs.Spec, rules Rules) error {
	l := spec.Linux
	for field, why := range map[string]struct {
		set bool
		why string
	}{
		"windows": {spec.Windows != nil, "want a Linux container"},
		"solaris": {spec.Solaris != nil, "want a Linux container"},
		"zos":     {spec.ZOS != nil, "want a Linux container"},
		"freebsd": {spec.FreeBSD != nil, "want a Linux container"},
		"vm":      {spec.VM != nil, "configuration.toml and the pod's annotations define the virtual machine"},
		"linux.netDevices": {len(l.NetDevices) > 0,
			"network devices of the host's are not moved into a guest; want links in the pod's network namespace"},
		"linux.seccomp.listenerPath": {!rules.NoSeccomp && l.Seccomp != nil && (l.Seccomp.ListenerPath != "" || l.Seccomp.ListenerMetadata != ""),
			"an agent on the host cannot answer for system calls of the guest's kernel"},
	} {
		if why.set {
			return fmt.Errorf("%s is set: %s: %w", field, why.why, errdefs.ErrInvalidArgument)
		}
	}
	for _, m := range spec.Mounts {
		if err := refuseMount(m); err != nil {
			return err
		}
	}
	return nil
}

// withoutSource are the file systems for which mount(2) does not look at the
// source.
var withoutSource = []string{
	"proc", "sysfs", "tmpfs", "ramfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "hugetlbfs", "bpf", "debugfs", "tracefs", "securityfs",
	"configfs", "fusectl", "binfmt_misc", "pstore", "efivarfs",
}

// refuseMount refuses a file system on a device or on directories of the host's.
// The guest has other files at such paths: /dev/vda may be the disk of another
// container's root file system. As runc does, it refuses to map the owners of anything
// but a bind mount.
func refuseMount(m specs.Mount) error {
	isNew := !isBind(m) && m.Type != socketType
	switch {
	case isNew && (len(m.UIDMappings)+len(m.GIDMappings) > 0 || hasAny(m.Options, idmapped)):
		return fmt.Errorf("mounts: %s is to have the owners of type %s mapped: want that only for a bind mount: %w",
			m.Destination, m.Type, errdefs.ErrInvalidArgument)
	case !isNew || slices.Contains(withoutSource, m.Type):
		return nil
	case m.Type == "overlay":
		return fmt.Errorf("mounts: %s is to be an overlay of the host's directories, of which the guest has none: want a bind mount of an overlay that the host has mounted: %w",
			m.Destination, errdefs.ErrInvalidArgument)
	case strings.HasPrefix(m.Source, "/") && !strings.HasPrefix(m.Source, "//"): // "//" begins a share of the network (cifs)
		return fmt.Errorf("mounts: %s is to be of type %s with the source %s, which is the host's: want a device (linux.devices), a direct-assigned volume, or a bind mount of what the host has mounted: %w",
			m.Destination, m.Type, m.Source, errdefs.ErrInvalidArgument)
	}
	return nil
}
