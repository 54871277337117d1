package guesttest

import (
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// initFailures are the containers that cannot be created or started.
func initFailures() map[string]initFailure {
	const byNsexec = "the words of libcontainer's C stage have its PIDs"
	failures := map[string]initFailure{
		"little memory": {
			change:  func(spec *specs.Spec) { spec.Linux.Resources.Memory = &specs.LinuxMemory{Limit: ptr(int64(64 << 10))} },
			differs: "the ways need different amounts of memory in the container's cgroup",
			mayRun:  true,
		},
		"OOM score": {
			change:  func(spec *specs.Spec) { spec.Process.OOMScoreAdj = ptr(5000) },
			differs: byNsexec,
		},
		"mapped twice": {
			change: func(spec *specs.Spec) {
				inUserNamespace(spec)
				spec.Linux.UIDMappings = append(spec.Linux.UIDMappings, spec.Linux.UIDMappings...)
			},
			differs: byNsexec,
		},
	}
	for _, changes := range []map[string]func(*specs.Spec){programFailures(), mountFailures(), settingFailures()} {
		for name, change := range changes {
			failures[name] = initFailure{change: change, differs: otherWords[name]}
		}
	}
	for _, name := range []string{"denied null", "no proc"} {
		f := failures[name]
		f.mayRun = true
		failures[name] = f
	}
	return failures
}

// otherWords are why failures have other words than by libcontainer's stage.
var otherWords = map[string]string{
	"denied null":         "the agent opens the container's /dev/null, and has no device rules",
	"no proc":             "libcontainer reads the kernel's capabilities in the container's /proc",
	"no source":           "it says which mount failed, as for other mounts",
	"file as root":        "libcontainer's executes its stage there",
	"device below a file": "libcontainer's has the path outside of the root",
	"tmpfs inside proc":   "libcontainer's has the path outside of the root",
	"mount below a file":  "libcontainer's names its function",
	"guard below a file":  "it does not get as far as mount(2)",
	"missing sysctl":      "libcontainer's has its own procfs in the path",
	"sysctl's value":      "libcontainer's has its own procfs in the path",
	"soft above hard":     "it has the words of an exec's",
}

// programFailures are about the process.
func programFailures() map[string]func(*specs.Spec) {
	process := func(change func(*specs.Process)) func(*specs.Spec) {
		return func(spec *specs.Spec) { change(spec.Process) }
	}
	program := func(arg0 string) func(*specs.Spec) {
		return process(func(p *specs.Process) { p.Args = []string{arg0} })
	}
	variable := func(variable string) func(*specs.Spec) {
		return process(func(p *specs.Process) { p.Env = append(p.Env, variable) })
	}
	return map[string]func(*specs.Spec){
		"no such name":   program("nosuch"),
		"no such file":   program("/no/such"),
		"no name":        program(""),
		"directory":      program("/tmp"),
		"not executable": program("/tmp/data"),
		"interpreter":    program("/tmp/script"),
		"format":         program("/tmp/elf"),
		"no path":        process(func(p *specs.Process) { p.Args, p.Env = []string{"ls"}, nil }),
		"closed program": process(func(p *specs.Process) { p.Args, p.User.UID = []string{"/tmp/closed/program"}, 1000 }),
		"file as cwd":    process(func(p *specs.Process) { p.Cwd = "/etc/passwd" }),
		"below a file":   process(func(p *specs.Process) { p.Cwd = "/etc/passwd/below" }),
		"relative cwd":   process(func(p *specs.Process) { p.Cwd = "tmp" }),
		"variable":       variable("NONSENSE"),
		"nameless":       variable("=1"),
		"nul":            variable("A=\x00"),
		"rlimit": process(func(p *specs.Process) {
			p.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NONSENSE"}}
		}),
		"soft above hard": process(func(p *specs.Process) {
			p.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 10, Hard: 5}}
		}),
		"unmapped user": func(spec *specs.Spec) {
			inUserNamespace(spec)
			spec.Process.User.UID = 70000
		},
		"terminal without devpts": func(spec *specs.Spec) {
			without("/dev/pts")(spec)
			spec.Process.Terminal = true
		},
	}
}

// mountFailures are about mounts, nodes and masks.
func mountFailures() map[string]func(*specs.Spec) {
	mount := func(m specs.Mount) func(*specs.Spec) {
		return func(spec *specs.Spec) { spec.Mounts = append(spec.Mounts, m) }
	}
	device := func(d specs.LinuxDevice) func(*specs.Spec) {
		return func(spec *specs.Spec) { spec.Linux.Devices = []specs.LinuxDevice{d} }
	}
	return map[string]func(*specs.Spec){
		"no source":           mount(bindOf("no/such", "/volumes", "bind")),
		"file on directory":   mount(bindOf("file", "/tmp", "bind")),
		"directory on file":   mount(bindOf("dir", "/etc/passwd", "bind")),
		"mount below a file":  mount(bindOf("dir", "/etc/passwd/below", "bind")),
		"mount inside proc":   mount(bindOf("dir", "/proc/sys", "bind")),
		"tmpfs inside proc":   mount(specs.Mount{Destination: "/proc/new", Type: "tmpfs", Source: "tmpfs"}),
		"tmpfs as proc":       mount(specs.Mount{Destination: "/proc", Type: "tmpfs", Source: "tmpfs"}),
		"proc on a link":      mount(specs.Mount{Destination: "/link", Type: "proc", Source: "proc"}),
		"sysfs on a link":     mount(specs.Mount{Destination: "/link", Type: "sysfs", Source: "sysfs"}),
		"unknown type":        mount(specs.Mount{Destination: "/volumes", Type: "nonsensefs", Source: "none"}),
		"bad value":           mount(specs.Mount{Destination: "/volumes", Type: "tmpfs", Source: "tmpfs", Options: []string{"size=nonsense"}}),
		"bad option":          mount(specs.Mount{Destination: "/volumes", Type: "tmpfs", Source: "tmpfs", Options: []string{"ro", "nonsense=1"}}),
		"device type":         device(specs.LinuxDevice{Path: "/dev/x", Type: "x", Major: 1, Minor: 3}),
		"device below a file": device(specs.LinuxDevice{Path: "/etc/passwd/x", Type: "c", Major: 1, Minor: 3}),
		"denied null":         device(specs.LinuxDevice{Path: "/dev/null", Type: "c", Major: 1, Minor: 3}),
		"mask below a file":   func(spec *specs.Spec) { spec.Linux.MaskedPaths = []string{"/etc/passwd/below"} },
		"guard below a file":  func(spec *specs.Spec) { spec.Linux.ReadonlyPaths = []string{"/etc/passwd/below"} },
		"mask without null": func(spec *specs.Spec) {
			without("/dev", "/dev/pts", "/dev/mqueue")(spec)
			spec.Mounts = append(spec.Mounts, bindOf("dir", "/dev", "bind"))
		},
		"locked atime": func(spec *specs.Spec) {
			inUserNamespace(spec)
			spec.Mounts = append(spec.Mounts, bindOf("dir", "/volumes", "rbind", "noatime"))
		},
		"hidden by a mount": func(spec *specs.Spec) {
			inUserNamespace(spec)
			spec.Mounts = append(spec.Mounts, bindOf("dir", "/volumes", "bind"))
		},
		"no proc": without("/proc"),
		"no root": func(spec *specs.Spec) { spec.Root.Path = "/no/such" },
		"file as root": func(spec *specs.Spec) {
			spec.Root.Path = initVolumes + "/file"
		},
		"root propagation": func(spec *specs.Spec) { spec.Linux.RootfsPropagation = "nonsense" },
	}
}

// settingFailures are about names, sysctls, limits and user namespaces.
func settingFailures() map[string]func(*specs.Spec) {
	sysctl := func(key, value string) func(*specs.Spec) {
		return func(spec *specs.Spec) { spec.Linux.Sysctl = map[string]string{key: value} }
	}
	return map[string]func(*specs.Spec){
		"unknown sysctl": sysctl("kernel.nonsense", "1"),
		"missing sysctl": sysctl("fs.mqueue.nonsense", "1"),
		"sysctl's value": sysctl("kernel.shmmax", "nonsense"),
		"domain name":    func(spec *specs.Spec) { spec.Domainname = strings.Repeat("x", 100) },
		"CPU period": func(spec *specs.Spec) {
			spec.Linux.Resources.CPU = &specs.LinuxCPU{Quota: ptr(int64(50000)), Period: ptr(uint64(5))}
		},
		"no mapping": func(spec *specs.Spec) {
			inUserNamespace(spec)
			spec.Linux.UIDMappings = nil
		},
	}
}
