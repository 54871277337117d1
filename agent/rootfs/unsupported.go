package rootfs

import (
	"slices"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// Unsupported returns which part of config, or the working directory cwd, only
// libcontainer's own stage can do; "" if there is none.
func Unsupported(config *configs.Config, cwd string) string {
	const parents = unix.MS_PRIVATE | unix.MS_SLAVE
	propagation := config.RootPropagation &^ unix.MS_REC
	switch {
	case config.Namespaces.Contains(configs.NEWUSER):
		return "a user namespace"
	case !config.Namespaces.Contains(configs.NEWNS) || config.Namespaces.PathOf(configs.NEWNS) != "":
		return "no mount namespace of the container"
	case config.NoPivotRoot:
		return "a root without pivot_root"
	case config.RootlessEUID || config.RootlessCgroups:
		return "a rootless container"
	case config.MountLabel != "":
		return "a mount label"
	case propagation&^parents != 0 || propagation == parents || (propagation == 0 && config.RootPropagation != 0):
		return "the root's propagation"
	case config.HasHook(configs.CreateContainer, configs.StartContainer):
		return "hooks in the container"
	case hasOwnProcess(slices.Concat(config.MaskPaths, config.ReadonlyPaths, []string{cwd})):
		return ownPath
	}
	return unsupportedMount(config.Mounts)
}

// ownPath is the reason of a path for which hasOwnProcess is true.
const ownPath = "a path in /proc/self"

// ownProcess are the entries of /proc that depend on the process that resolves them.
// net and mounts are links to self's.
var ownProcess = []string{"/proc/self", "/proc/thread-self", "/proc/net", "/proc/mounts"}

// hasOwnProcess reports whether one of paths depends on the process that resolves
// it. The calling thread has no entry in the container's /proc; the guest's own /proc,
// in which the sources of bind mounts are, would show the agent's.
func hasOwnProcess(paths []string) bool {
	for _, p := range paths {
		p = clean(p)
		if slices.ContainsFunc(ownProcess, func(dir string) bool { _, ok := cutDir(p, dir); return ok }) {
			return true
		}
	}
	return false
}

func unsupportedMount(mounts []*configs.Mount) string {
	procs, cgroups := 0, 0
	for _, m := range mounts {
		switch {
		case m.IsIDMapped():
			return "an id-mapped mount"
		case m.Extensions&configs.EXT_COPYUP != 0:
			return "a tmpfs with tmpcopyup"
		case m.IsBind() && hasOwnProcess([]string{m.Source}):
			return ownPath
		case isInner(m) && m.Flags&unix.MS_REMOUNT != 0:
			return "a remount of proc or cgroup"
		case m.Device == "proc":
			procs++
		case isCgroup(m):
			cgroups++
		}
	}
	switch {
	case procs > 1:
		return "two mounts of proc"
	case cgroups > 1:
		return "two mounts of cgroup"
	}
	return ""
}
