package virtcontainers

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// complete returns the bundle with the pod's sysctls and mounts in its spec. The
// container's own prevail. In a pod without a pause container (StandIn) a user
// namespace is a new one. It fails with errdefs.ErrInvalidArgument if that is not possible.
func (o *Options) complete(b *bundle.Bundle) (*bundle.Bundle, error) {
	if len(o.Sysctls)+len(o.Mounts) == 0 && !o.StandIn {
		return b, nil
	}
	spec, linux := *b.Spec, *b.Spec.Linux
	if o.StandIn {
		var err error
		if linux.Namespaces, err = withNewUser(linux.Namespaces); err != nil {
			return nil, err
		}
	}
	linux.Sysctl = maps.Clone(o.Sysctls)
	if linux.Sysctl == nil {
		linux.Sysctl = make(map[string]string)
	}
	maps.Copy(linux.Sysctl, b.Spec.Linux.Sysctl)
	spec.Linux, spec.Mounts = &linux, slices.Clone(b.Spec.Mounts)
	for _, m := range o.Mounts {
		spec.Mounts = withMount(spec.Mounts, m, b.Spec.Root.Readonly)
	}
	return &bundle.Bundle{Dir: b.Dir, Spec: &spec}, nil
}

// withNewUser returns the namespaces with a new user namespace, with the spec's mappings,
// in place of one with a path. containerd's CRI plugin gives each container the path of
// the sandbox process's user namespace (WithPodNamespaces), which is on the host, and no
// earlier container has made one in the guest. All of the pod's containers have the same
// mappings.
//
// A container that joins another one's PID namespace cannot have that: the kernel lets it
// mount /proc only if it has CAP_SYS_ADMIN in the user namespace in which that PID
// namespace was made (fs/super.c, mount_capable).
func withNewUser(namespaces []specs.LinuxNamespace) ([]specs.LinuxNamespace, error) {
	named := func(kind specs.LinuxNamespaceType) int {
		return slices.IndexFunc(namespaces, func(ns specs.LinuxNamespace) bool { return ns.Type == kind && ns.Path != "" })
	}
	user, pid := named(specs.UserNamespace), named(specs.PIDNamespace)
	switch {
	case user < 0:
		return namespaces, nil
	case pid >= 0:
		return nil, fmt.Errorf("linux.namespaces: the pid namespace is to be %s, but in a pod without a pause container (sandboxer = \"shim\") with "+
			"a user namespace (hostUsers: false) each container has separate ones: use a pause container (sandboxer = \"podsandbox\"): %w",
			namespaces[pid].Path, errdefs.ErrInvalidArgument)
	}
	namespaces = slices.Clone(namespaces)
	namespaces[user].Path = ""
	return namespaces, nil
}

// withMount adds a bind to a container's mounts. It takes the place of what is at its
// destination, unless that is a bind: the engine's defaults have a file system at
// /dev/shm.
func withMount(mounts []specs.Mount, m specs.Mount, readOnly bool) []specs.Mount {
	at := func(other specs.Mount) bool { return path.Clean(other.Destination) == m.Destination }
	if slices.ContainsFunc(mounts, func(other specs.Mount) bool { return at(other) && isBind(other) }) {
		return mounts
	}
	if readOnly && m.Destination != guestspec.ShmDestination {
		m.Options = append(slices.Clone(m.Options), "ro")
	}
	return append(slices.DeleteFunc(mounts, at), m)
}

func isBind(m specs.Mount) bool {
	return m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}
