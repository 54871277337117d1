package warmup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers/bundle"
)

// ID is the container's.
const ID = "warm-up"

// programName is the program's path in the container.
const programName = "/hello"

// rootfsDirs are the directories that the spec's mounts need.
var rootfsDirs = []string{"dev", "proc", "run", "sys"}

// Make makes the container's bundle in dir, which must not exist. The caller
// removes it. On an error nothing is left.
func Make(dir string) (_ *bundle.Bundle, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make bundle: %w", err), os.RemoveAll(dir))
		}
	}()
	b := &bundle.Bundle{Dir: dir, Spec: spec()}
	if err := os.MkdirAll(b.RootfsPath(), 0o755); err != nil {
		return nil, err
	}
	for _, name := range rootfsDirs {
		if err := os.Mkdir(filepath.Join(b.RootfsPath(), name), 0o755); err != nil {
			return nil, err
		}
	}
	return b, os.WriteFile(filepath.Join(b.RootfsPath(), programName), program(), 0o755)
}

// spec is a container like those that engines ask for: the more of it is like
// theirs, the less is new to the guest afterwards.
func spec() *specs.Spec {
	pids := int64(100)
	shares := uint64(1024)
	return &specs.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: "rootfs"},
		Process: &specs.Process{
			Args: []string{programName}, Cwd: "/", Env: []string{"PATH=/"}, NoNewPrivileges: true,
			Capabilities: &specs.LinuxCapabilities{Bounding: capabilities, Effective: capabilities, Permitted: capabilities},
			Rlimits:      []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: 1024, Soft: 1024}},
		},
		Hostname: ID,
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
			{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
			{Destination: "/run", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
				{Type: specs.NetworkNamespace}, {Type: specs.CgroupNamespace},
			},
			MaskedPaths:   []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
			Resources: &specs.LinuxResources{
				Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
				CPU:     &specs.LinuxCPU{Shares: &shares},
				Pids:    &specs.LinuxPids{Limit: &pids},
			},
		},
	}
}

// capabilities are some of those that engines give by default.
var capabilities = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETGID", "CAP_SETUID"}
