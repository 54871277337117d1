package hostcgroup

import (
	"slices"
	"strings"
)

// Join moves a stand-in to the cgroups in which the pod is counted: to the
// VM's, in hierarchies that count vCPUs separately to theirs, and in the one
// that counts processes to the pod's. Engines that look up the cgroups of a
// container's pid then find what the container costs its host. dirs is Dirs'
// result; if it is empty the process stays where it is. The process must leave,
// or Release move it, before the pod's end.
func Join(pid, vm int, dirs []string) error {
	return joinIn(DefaultRoot, pid, vm, dirs)
}

func joinIn(root string, pid, vm int, dirs []string) error {
	if len(dirs) == 0 {
		return nil
	}
	found, err := hierarchies(root)
	if err != nil {
		return err
	}
	now, err := cgroupsOf(pid)
	if err != nil {
		return err
	}
	vms, err := cgroupsOf(vm)
	if err != nil {
		return err
	}
	for _, h := range found {
		// A cgroup that is not the pod's may have unrelated limits.
		of := slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool { return !strings.HasPrefix(dir, h.mount+"/") })
		dir := h.of(vms)
		if (h.has(threadControllers...) || h.has(countsProcesses)) && len(of) > 0 {
			dir = of[0] // the pod's, before its overhead's
		}
		if !slices.Contains(of, dir) {
			continue
		}
		if err := (place{hierarchy: h}).moveFrom(now, dir, pid); err != nil {
			return err
		}
	}
	return nil
}
