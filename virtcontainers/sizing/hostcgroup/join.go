package hostcgroup

import (
	"slices"
	"strings"
)

// Join moves a process that stands for a pod, and is none of its parts, to
// where the pod is counted: with the VM, or where vCPUs are counted apart, with
// them, and where processes are, in the pod's cgroup. Engines that look up the cgroups of a container's pid then find what the
// container costs its host. dirs is what Dirs gave; without any the process stays
// where it is. What it joins is left by it, or by Release, before the pod's end.
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
		// A cgroup that is not the pod's may have limits of somebody else's.
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
