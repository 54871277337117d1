package guestspec

import (
	"path"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

const (
	cgroupDestination = "/sys/fs/cgroup"
	// systemdHierarchy is where a host with cgroup v1 has systemd's own hierarchy.
	systemdHierarchy = cgroupDestination + "/systemd"
)

// filterCgroups gives a container its cgroup where the spec binds the host's whole
// hierarchy, as the usual command lines for systemd do. A bind would show the guest's root
// cgroup, while /proc/self/cgroup has paths of the container's cgroup namespace.
func filterCgroups(mounts []specs.Mount) {
	for i, m := range mounts {
		if !isBind(m) || path.Clean(m.Source) != cgroupDestination || path.Clean(m.Destination) != cgroupDestination {
			continue
		}
		access := "rw"
		if readOnly, _ := isReadOnly(m.Options); readOnly {
			access = "ro"
		}
		mounts[i] = specs.Mount{Destination: m.Destination, Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", access}}
	}
}

// filterSystemd gives a container that is to run systemd its cgroup v2. On a host with
// cgroup v1 Podman (libpod, setupSystemd) and CRI-O bind systemd's hierarchy into it. The
// guest has none, and there the container's cgroup mount is writable, as both make it on
// a host with cgroup v2.
func (g *Guest) filterSystemd(spec *specs.Spec) {
	at := slices.IndexFunc(spec.Mounts, isSystemdHierarchy)
	if at < 0 {
		return
	}
	readOnly, _ := isReadOnly(spec.Mounts[at].Options)
	spec.Mounts = slices.Delete(spec.Mounts, at, at+1)
	if readOnly {
		g.Dropped = append(g.Dropped, "systemd's cgroup v1 hierarchy")
		return
	}
	what := "systemd's cgroup v1 hierarchy"
	for i, m := range spec.Mounts {
		if m.Type == "cgroup" && path.Clean(m.Destination) == cgroupDestination {
			spec.Mounts[i].Options = append(without(m.Options, "ro", "rro"), "rw")
			what = "systemd's cgroup v1 hierarchy (the container's cgroup v2 is writable instead)"
		}
	}
	g.Dropped = append(g.Dropped, what)
}

func isSystemdHierarchy(m specs.Mount) bool {
	return isBind(m) && path.Clean(m.Source) == systemdHierarchy && path.Clean(m.Destination) == systemdHierarchy
}
