package oci

import (
	"github.com/opencontainers/runtime-spec/specs-go"
)

// defaultCapabilities are those of runc's example.
var defaultCapabilities = []string{"CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE"}

// ExampleSpec is what the spec command writes: a shell on a terminal in
// ./rootfs, without a network.
func ExampleSpec() *specs.Spec {
	return &specs.Spec{
		Version:  specs.Version,
		Root:     &specs.Root{Path: "rootfs", Readonly: true},
		Hostname: "kata-runtime",
		Process: &specs.Process{
			Terminal: true, Args: []string{"sh"}, Cwd: "/", NoNewPrivileges: true,
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm"},
			Capabilities: &specs.LinuxCapabilities{
				Bounding: defaultCapabilities, Effective: defaultCapabilities, Permitted: defaultCapabilities,
			},
			Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: 1024, Soft: 1024}},
		},
		Mounts: exampleMounts(),
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.MountNamespace}, {Type: specs.CgroupNamespace},
			},
			MaskedPaths: []string{"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
				"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/sys/firmware", "/proc/scsi"},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
			Resources:     &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}},
		},
	}
}

func exampleMounts() []specs.Mount {
	mount := func(kind, destination string, options ...string) specs.Mount {
		return specs.Mount{Destination: destination, Type: kind, Source: kind, Options: options}
	}
	return []specs.Mount{
		mount("proc", "/proc"),
		mount("tmpfs", "/dev", "nosuid", "strictatime", "mode=755", "size=65536k"),
		mount("devpts", "/dev/pts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
		mount("tmpfs", "/dev/shm", "nosuid", "noexec", "nodev", "mode=1777", "size=65536k"),
		mount("mqueue", "/dev/mqueue", "nosuid", "noexec", "nodev"),
		mount("sysfs", "/sys", "nosuid", "noexec", "nodev", "ro"),
		mount("cgroup", "/sys/fs/cgroup", "nosuid", "noexec", "nodev", "relatime", "ro"),
	}
}
