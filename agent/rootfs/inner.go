package rootfs

import "github.com/opencontainers/runc/libcontainer/configs"

// InnerMount is a mount that a process in the container's namespaces makes. Its
// fields are arguments of mount(2), but for the destination in the container.
type InnerMount struct {
	Source, Type, Data string
	Flags              uintptr // MS_*
	Destination        string
}

// Inner lists the mounts that only a process in the container's PID and cgroup
// namespaces can make, in config's order: proc and cgroup2.
func Inner(config *configs.Config) []InnerMount {
	var list []InnerMount
	for _, m := range config.Mounts {
		if !isInner(m) {
			continue
		}
		fstype := m.Device
		if fstype == "cgroup" {
			fstype = "cgroup2"
		}
		list = append(list, InnerMount{Source: m.Source, Type: fstype, Flags: uintptr(m.Flags), Data: m.Data, Destination: m.Destination})
	}
	return list
}

func isInner(m *configs.Mount) bool { return m.Device == "proc" || isCgroup(m) }

func isCgroup(m *configs.Mount) bool { return m.Device == "cgroup" || m.Device == "cgroup2" }
