package virtcontainers

import (
	"maps"
	"path"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// complete returns the bundle with the pod's sysctls and mounts in its spec. The
// container's own prevail.
func (o *Options) complete(b *bundle.Bundle) *bundle.Bundle {
	if len(o.Sysctls)+len(o.Mounts) == 0 {
		return b
	}
	spec, linux := *b.Spec, *b.Spec.Linux
	linux.Sysctl = maps.Clone(o.Sysctls)
	if linux.Sysctl == nil {
		linux.Sysctl = make(map[string]string)
	}
	maps.Copy(linux.Sysctl, b.Spec.Linux.Sysctl)
	spec.Linux, spec.Mounts = &linux, slices.Clone(b.Spec.Mounts)
	for _, m := range o.Mounts {
		spec.Mounts = withMount(spec.Mounts, m, b.Spec.Root.Readonly)
	}
	return &bundle.Bundle{Dir: b.Dir, Spec: &spec}
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
