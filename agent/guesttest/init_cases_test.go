package guesttest

import (
	"os"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// initCases are the containers whose starts are compared; volumeCases has more.
func initCases() map[string]initCase {
	changes := map[string]func(*specs.Spec){
		"plain":      func(*specs.Spec) {},
		"containerd": asContainerd,
		"readonly":   func(spec *specs.Spec) { asContainerd(spec); spec.Root.Readonly = true },
		"user": func(spec *specs.Spec) {
			asContainerd(spec)
			spec.Process.User = specs.User{UID: 1000, GID: 1001, AdditionalGids: []uint32{5, 6}}
		},
		"capabilities":   someCapabilities,
		"user namespace": inUserNamespace,
		"terminal":       atTerminal,
		"user terminal": func(spec *specs.Spec) {
			atTerminal(spec)
			spec.Process.User = specs.User{UID: 1000, GID: 1001}
		},
		"limits":            processLimits,
		"environment":       func(spec *specs.Spec) { spec.Process.Env = append(spec.Process.Env, "A=1", "HOME=", "A=2", "B=") },
		"no environment":    func(spec *specs.Spec) { spec.Process.Env = nil; spec.Process.Args[0] = "/bin/sh" },
		"working directory": func(spec *specs.Spec) { spec.Process.Cwd = "/no/such/directory" },
		"working link": func(spec *specs.Spec) {
			spec.Process.Cwd, spec.Process.User.UID = "/link", 1000
		},
		"own directory": func(spec *specs.Spec) { spec.Process.Cwd = "/dev/fd" },
		"closed directory": func(spec *specs.Spec) {
			spec.Process.Cwd, spec.Process.User.UID = "/tmp/closed", 1000
		},
		"resources":  limitedResources,
		"names":      podNames,
		"privileged": asPrivileged,
		"seccomp": func(spec *specs.Spec) {
			spec.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{{Names: []string{"chmod"}, Action: specs.ActErrno}}}
		},
		"time": func(spec *specs.Spec) {
			spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.TimeNamespace})
			spec.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{"boottime": {Secs: 1000}}
		},
		"protected": func(spec *specs.Spec) { spec.Process.OOMScoreAdj = ptr(-998) },
	}
	cases := map[string]initCase{"joined": {change: asContainerd, sharesPID: true}}
	for name, change := range changes {
		cases[name] = initCase{change: change}
	}
	return cases
}

// asContainerd adds what containerd's default spec has more than shell's.
func asContainerd(spec *specs.Spec) {
	spec.Mounts = append(spec.Mounts,
		specs.Mount{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
		specs.Mount{Destination: "/run", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}})
	spec.Linux.MaskedPaths = []string{
		"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats",
		"/proc/sched_debug", "/sys/firmware", "/sys/devices/virtual/powercap", "/proc/scsi", "/no/such/path",
	}
	spec.Linux.ReadonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/no/such/path"}
	for _, device := range []struct{ major, minor int64 }{{1, 3}, {1, 8}, {1, 7}, {5, 0}, {1, 5}, {1, 9}, {5, 1}, {136, -1}, {5, 2}} {
		rule := specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: ptr(device.major), Access: "rwm"}
		if device.minor >= 0 {
			rule.Minor = ptr(device.minor)
		}
		spec.Linux.Resources.Devices = append(spec.Linux.Resources.Devices, rule)
	}
}

func someCapabilities(spec *specs.Spec) {
	caps := []string{"CAP_KILL", "CAP_CHOWN", "CAP_NONSENSE"}
	p := spec.Process
	p.User = specs.User{UID: 1000, GID: 1000}
	p.Capabilities = &specs.LinuxCapabilities{Bounding: caps, Permitted: caps, Effective: caps, Inheritable: caps, Ambient: caps[:1]}
	p.NoNewPrivileges = false
}

func atTerminal(spec *specs.Spec) {
	asContainerd(spec)
	spec.Process.Terminal, spec.Process.ConsoleSize = true, &specs.Box{Height: 33, Width: 77}
}

func processLimits(spec *specs.Spec) {
	p := spec.Process
	p.User.Umask, p.OOMScoreAdj = ptr(uint32(0o27)), ptr(500)
	p.Rlimits = []specs.POSIXRlimit{
		{Type: "RLIMIT_NOFILE", Soft: 77, Hard: 2048}, {Type: "RLIMIT_NPROC", Soft: 500, Hard: 500},
		{Type: "RLIMIT_CORE"}, {Type: "RLIMIT_STACK", Soft: 4 << 20, Hard: 1<<64 - 1},
	}
}

func limitedResources(spec *specs.Spec) {
	r := spec.Linux.Resources
	r.Memory = &specs.LinuxMemory{Limit: ptr(int64(64 << 20)), Reservation: ptr(int64(32 << 20)), Swap: ptr(int64(80 << 20))}
	r.Pids = &specs.LinuxPids{Limit: ptr(int64(77))}
	r.CPU = &specs.LinuxCPU{Quota: ptr(int64(50000)), Period: ptr(uint64(100000)), Shares: ptr(uint64(512)), Burst: ptr(uint64(1000)), Cpus: "40-47"}
	r.HugepageLimits = []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 4 << 20}}
	r.Unified = map[string]string{"memory.high": "50331648", "memory.oom.group": "1"}
}

// podNames sets what belongs to the pod's namespaces.
func podNames(spec *specs.Spec) {
	spec.Domainname = "domain" + aNumber
	spec.Linux.Sysctl = map[string]string{"kernel.shmmax": aNumber, "kernel.msgmax": aNumber, "fs.mqueue.msg_max": aNumber, "kernel/shm_rmid_forced": "0"}
}

func asPrivileged(spec *specs.Spec) {
	privileged(spec)
	for i := range spec.Mounts {
		if kind := spec.Mounts[i].Type; kind == "sysfs" || kind == "cgroup" {
			spec.Mounts[i].Options = []string{"nosuid", "noexec", "nodev", "rw"}
		}
	}
	spec.Linux.Devices = append(deviceNodes(), specs.LinuxDevice{Path: "/dev/kmsg", Type: "c", Major: 1, Minor: 11, FileMode: ptr(os.FileMode(0o600))})
}

// deviceNodes are nodes of each kind.
func deviceNodes() []specs.LinuxDevice {
	return []specs.LinuxDevice{
		{Path: "/dev/sub/zero", Type: "c", Major: 1, Minor: 5, FileMode: ptr(os.FileMode(0o640)), UID: ptr(uint32(7)), GID: ptr(uint32(8))},
		{Path: "/dev/disk", Type: "b", Major: 254, Minor: 0},
		{Path: "/dev/unbuffered", Type: "u", Major: 1, Minor: 3, FileMode: ptr(os.FileMode(0o606))},
		{Path: "/dev/fifo", Type: "p", FileMode: ptr(os.FileMode(0o622))},
		{Path: "/nodes/null", Type: "c", Major: 1, Minor: 3, FileMode: ptr(os.FileMode(0o666))},
		{Path: "/link/null", Type: "c", Major: 1, Minor: 3, FileMode: ptr(os.FileMode(0o4755))},
		{Path: "/etc/passwd", Type: "c", Major: 1, Minor: 5}, // It is a file and stays one.
		{Path: "/dev/null", Type: "c", Major: 1, Minor: 3, FileMode: ptr(os.FileMode(0o600)), GID: ptr(uint32(9))},
	}
}
