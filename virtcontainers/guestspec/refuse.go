package guestspec

import (
	"fmt"

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
	return nil
}
