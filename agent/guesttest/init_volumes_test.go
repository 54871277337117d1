package guesttest

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// volumeCases are containers with mounts and nodes of all kinds.
func volumeCases() map[string]func(*specs.Spec) {
	withRoot := func(propagation string) func(*specs.Spec) {
		return func(spec *specs.Spec) { spec.Linux.RootfsPropagation = propagation; volumes(spec) }
	}
	return map[string]func(*specs.Spec){
		"volumes":       volumes,
		"tmpfs":         temporary,
		"file systems":  fileSystems,
		"private root":  withRoot("rprivate"),
		"slave root":    withRoot("rslave"),
		"shared root":   withRoot("rshared"),
		"readonly root": func(spec *specs.Spec) { volumes(spec); spec.Root.Readonly = true },
		"devices": func(spec *specs.Spec) {
			spec.Linux.Devices = deviceNodes()
			spec.Linux.Resources.Devices = append(spec.Linux.Resources.Devices,
				specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: ptr(int64(1)), Minor: ptr(int64(3)), Access: "rw"},
				specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: ptr(int64(10)), Access: "rw"},
				specs.LinuxDeviceCgroup{Allow: true, Type: "b", Major: ptr(int64(8)), Minor: ptr(int64(0)), Access: "m"})
		},
		"readonly dev": func(spec *specs.Spec) {
			changeMount(spec, "/dev", func(m *specs.Mount) { m.Options = append(m.Options, "ro") })
		},
		"no proc": func(spec *specs.Spec) {
			without("/proc")(spec)
			spec.Process.Capabilities = nil // The stage finds them in /proc/sys: see initFailures.
		},
		"no dev": without("/dev", "/dev/pts", "/dev/mqueue"),
		"bound dev": func(spec *specs.Spec) {
			without("/dev", "/dev/pts", "/dev/mqueue")(spec)
			spec.Mounts = append(spec.Mounts, bindOf("dir", "/dev", "bind"))
			spec.Linux.MaskedPaths = nil // Files are masked by /dev/null.
		},
		"no cgroup": without("/sys/fs/cgroup"),
		"cgroup to write": func(spec *specs.Spec) {
			changeMount(spec, "/sys/fs/cgroup", func(m *specs.Mount) { m.Options = []string{"rw", "nosuid"} })
		},
		"bound cgroup": func(spec *specs.Spec) {
			without("/sys/fs/cgroup", "/sys")(spec)
			spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/sys", Type: "bind", Source: "/sys", Options: []string{"rbind", "rro"}})
		},
		"masked volumes": func(spec *specs.Spec) {
			volumes(spec)
			spec.Linux.MaskedPaths = []string{"/volumes/plain/nested", "/etc/passwd", "/volumes/recursive"}
			spec.Linux.ReadonlyPaths = []string{"/volumes/shared", "/etc"}
		},
		"volumes in user namespace": func(spec *specs.Spec) {
			inUserNamespace(spec)
			volumes(spec)
			for i := range spec.Mounts { // It cannot uncover what is below a mount, nor change its atime (mount_namespaces(7)).
				m := &spec.Mounts[i]
				if at := slices.Index(m.Options, "bind"); at >= 0 {
					m.Options[at] = "rbind"
				}
				m.Options = slices.DeleteFunc(m.Options, func(option string) bool { return option == "noatime" })
			}
		},
	}
}

// without removes mounts, and the paths below them that are masked or read-only.
func without(destinations ...string) func(*specs.Spec) {
	return func(spec *specs.Spec) {
		spec.Mounts = slices.DeleteFunc(spec.Mounts, func(m specs.Mount) bool { return slices.Contains(destinations, m.Destination) })
		if slices.Contains(destinations, "/proc") {
			spec.Linux.MaskedPaths, spec.Linux.ReadonlyPaths = nil, nil
		}
	}
}

func changeMount(spec *specs.Spec, destination string, change func(*specs.Mount)) {
	for i := range spec.Mounts {
		if spec.Mounts[i].Destination == destination {
			change(&spec.Mounts[i])
		}
	}
}

func bindOf(source, destination string, options ...string) specs.Mount {
	return specs.Mount{Destination: destination, Type: "bind", Source: initVolumes + "/" + source, Options: options}
}

// volumes adds bind mounts.
func volumes(spec *specs.Spec) {
	spec.Mounts = append(spec.Mounts,
		bindOf("dir", "/volumes/plain", "bind"),
		bindOf("dir", "/volumes/readonly", "bind", "ro"),
		bindOf("dir", "/volumes/recursive", "rbind", "rro"),
		bindOf("dir", "/volumes/half", "rbind", "ro"),
		bindOf("dir", "/volumes/flags", "rbind", "nosuid", "nodev", "noexec", "noatime"),
		bindOf("dir", "/volumes/private", "rbind", "rprivate"),
		bindOf("dir", "/volumes/slave", "rbind", "rslave"),
		bindOf("dir", "/volumes/shared", "rbind", "rshared"),
		bindOf("dir", "/volumes/unbindable", "bind", "unbindable"),
		bindOf("dir", "/volumes/outer", "rbind"),
		bindOf("dir/nested", "/volumes/outer/nested", "bind", "ro"),
		bindOf("dir/inner", "/volumes/outer/inner/new", "bind"),
		bindOf("file", "/etc/missing/file", "bind", "ro"),
		bindOf("file", "/etc/passwd", "bind"),
		bindOf("file", "/dev/termination-log", "bind"),
		bindOf("file", "/proc/meminfo", "bind", "ro"),
		bindOf("dir", "/link", "bind"),
		bindOf("dir/inner", "/link/inner/over", "bind"),
		bindOf("dir", "/volumes/up/../../../../sideways", "bind"),
	)
}

// temporary adds tmpfs mounts.
func temporary(spec *specs.Spec) {
	tmpfs := func(destination string, options ...string) specs.Mount {
		return specs.Mount{Destination: destination, Type: "tmpfs", Source: "tmpfs", Options: options}
	}
	spec.Mounts = append(spec.Mounts,
		tmpfs("/temporary/plain"),
		tmpfs("/temporary/mode", "mode=1770", "uid=5", "gid=6", "size=64k", "nr_inodes=50"),
		tmpfs("/temporary/ro", "ro", "nosuid"),
		tmpfs("/etc", "tmpcopyup", "nodev"),
		tmpfs("/tmp", "noexec", "size=50%"),
	)
}

// fileSystems adds the file systems that a container may have more than once.
func fileSystems(spec *specs.Spec) {
	spec.Mounts = append(spec.Mounts,
		specs.Mount{Destination: "/more/pts", Type: "devpts", Source: "more", Options: []string{"newinstance", "ptmxmode=0600", "mode=0600", "max=5", "noexec"}},
		specs.Mount{Destination: "/more/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"ro", "nosuid"}},
		specs.Mount{Destination: "/more/sys", Type: "sysfs", Source: "none", Options: []string{"noexec", "ro"}},
		specs.Mount{Destination: "/more/proc", Type: "proc", Source: "more", Options: []string{"hidepid=2", "relatime"}},
		specs.Mount{Destination: "/more/cgroup", Type: "cgroup2", Source: "cgroup2", Options: []string{"ro"}},
		specs.Mount{Destination: "/more/overlay", Type: "overlay", Source: "overlay", Options: []string{
			"lowerdir=" + initVolumes + "/dir/nested:" + initVolumes + "/layer", "nodev",
		}},
	)
}
