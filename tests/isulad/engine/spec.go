package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// capabilities are those of a container without --privileged.
var capabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
	"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
}

// specJSON returns config.json as iSulad writes it.
func (c *Container) specJSON() ([]byte, error) {
	spec := &specs.Spec{
		Version:     "1.0.1",
		Root:        &specs.Root{Path: c.specRootfs()},
		Hostname:    c.ID[:12],
		Process:     c.process(),
		Hooks:       &specs.Hooks{},
		Annotations: c.annotations(),
		Mounts:      c.mounts(),
		Linux:       c.linux(),
	}
	spec.Linux.Seccomp = seccomp.DefaultProfile(spec)
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode spec: %w", err)
	}
	return dropZeros(data)
}

// dropZeros removes the zeros that Go's encoder writes and iSulad's JSON
// library omits.
func dropZeros(data []byte) ([]byte, error) {
	var spec map[string]any
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, err
	}
	process := spec["process"].(map[string]any)
	process["user"], process["consoleSize"] = map[string]any{}, map[string]any{}
	linux := spec["linux"].(map[string]any)
	// 2^64-1 does not survive a float64.
	memory := linux["resources"].(map[string]any)["memory"].(map[string]any)
	memory["swappiness"] = json.Number("18446744073709551615")
	return json.MarshalIndent(spec, "", "    ")
}

func (c *Container) process() *specs.Process {
	// iSulad appends its own PATH to the image's.
	env := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	env = append(env, c.cfg.Env...)
	env = append(env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME="+c.ID[:12])
	if c.cfg.TTY {
		env = append(env, "TERM=xterm")
	}
	return &specs.Process{
		Terminal: c.cfg.TTY, Args: c.cfg.Args, Env: env, Cwd: "/",
		Capabilities: &specs.LinuxCapabilities{
			Bounding: capabilities, Effective: capabilities, Inheritable: capabilities, Permitted: capabilities,
		},
	}
}

func (c *Container) annotations() map[string]string {
	all := map[string]string{
		"host.network.mode":      "none",
		"cgroup.dir":             "/isulad",
		"log.console.driver":     "json-file",
		"log.console.file":       filepath.Join(c.Bundle(), "console.log"),
		"log.console.filesize":   "1MB",
		"log.console.filerotate": "7",
		"rootfs.mount":           filepath.Join(c.engine.graph(), "mnt", "rootfs"),
		"native.umask":           "secure",
	}
	maps.Copy(all, c.cfg.Annotations)
	return all
}

func (c *Container) mounts() []specs.Mount {
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		// iSulad 2.1.6 gives the bind the size of the tmpfs (specs_mount.c).
		bind("/dev/shm", c.shm(), "size=67108864"),
	}
	for _, name := range []string{"hostname", "hosts", "resolv.conf"} {
		mounts = append(mounts, bind("/etc/"+name, filepath.Join(c.Bundle(), name)))
	}
	return mounts
}

func bind(destination, source string, more ...string) specs.Mount {
	return specs.Mount{Destination: destination, Type: "bind", Source: source, Options: append([]string{"rbind", "rprivate"}, more...)}
}

func (c *Container) linux() *specs.Linux {
	every, unset := int64(-1), uint64(math.MaxUint64)
	linux := &specs.Linux{
		CgroupsPath: "/isulad/" + c.ID,
		Resources: &specs.LinuxResources{
			Memory: &specs.LinuxMemory{Swappiness: &unset},
			Devices: []specs.LinuxDeviceCgroup{
				{Allow: false, Access: "rwm"},
				{Allow: true, Type: "c", Major: &every, Minor: &every, Access: "m"},
				{Allow: true, Type: "b", Major: &every, Minor: &every, Access: "m"},
			},
		},
		MaskedPaths:   []string{"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/sys/firmware", "/proc/scsi"},
		ReadonlyPaths: []string{"/proc/asound", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
	}
	if c.cfg.CPUShares != 0 {
		linux.Resources.CPU = &specs.LinuxCPU{Shares: &c.cfg.CPUShares}
	}
	for _, kind := range []specs.LinuxNamespaceType{
		specs.MountNamespace, specs.PIDNamespace, specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.CgroupNamespace,
	} {
		linux.Namespaces = append(linux.Namespaces, specs.LinuxNamespace{Type: kind, Path: c.cfg.Namespaces[kind]})
	}
	for _, n := range []int64{1, 3, 5, 7, 8, 9} { // null, zero, ...
		major := int64(1)
		linux.Resources.Devices = append(linux.Resources.Devices,
			specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: &major, Minor: &n, Access: "rwm"})
	}
	return linux
}

func (c *Container) specRootfs() string {
	if c.cfg.Rootfs != "" {
		return c.cfg.Rootfs
	}
	return c.Rootfs()
}
