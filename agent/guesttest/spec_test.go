package guesttest

import "github.com/opencontainers/runtime-spec/specs-go"

func ptr[T any](v T) *T { return &v }

// process is a shell script in a container.
func process(script string) *specs.Process {
	return &specs.Process{
		Args: []string{"sh", "-c", script}, Cwd: "/", Env: []string{"PATH=/bin"},
		Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 1024, Hard: 1024}},
	}
}

// shell returns the spec of a container that runs a script, with what engines
// put into a spec.
func shell(script string) *specs.Spec {
	caps := []string{"CAP_CHOWN", "CAP_KILL", "CAP_MKNOD", "CAP_SETUID", "CAP_SETGID"}
	p := process(script)
	p.NoNewPrivileges = true
	p.Capabilities = &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps}
	safe := []string{"nosuid", "noexec", "nodev"}
	return &specs.Spec{
		Version:  specs.Version,
		Process:  p,
		Root:     &specs.Root{Path: "/rootfs"},
		Hostname: "other",
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: safe},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
			{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: safe},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: append([]string{"ro"}, safe...)},
			{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: append([]string{"ro"}, safe...)},
		},
		Linux: &specs.Linux{
			CgroupsPath: "/of/the/host",
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace, Path: "/proc/1/ns/ipc"}, {Type: specs.MountNamespace},
				{Type: specs.NetworkNamespace, Path: "/of/the/host"}, {Type: specs.CgroupNamespace},
			},
			MaskedPaths:   []string{"/proc/kcore"},
			ReadonlyPaths: []string{"/proc/sys"},
			Resources:     &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}},
		},
	}
}

// inUserNamespace gives a container its own user namespace.
func inUserNamespace(spec *specs.Spec) {
	spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
	spec.Linux.UIDMappings = []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}}
	spec.Linux.GIDMappings = spec.Linux.UIDMappings
}
