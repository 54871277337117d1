package hostcgroup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// DefaultRoot is where hosts have their cgroup file systems.
const DefaultRoot = "/sys/fs/cgroup"

// hierarchy is one mounted tree of cgroups: the only one of v2, or one of the
// several of v1.
type hierarchy struct {
	// mount is its root cgroup's directory.
	mount string
	// root is that cgroup's path in the hierarchy, "/" unless the host is
	// itself a container.
	root string
	// unified is set for cgroup v2.
	unified bool
	// controllers are those of a v1 hierarchy, along with mount options that
	// are not controllers.
	controllers []string
}

// threadControllers are the v1 controllers that can usefully treat a process's
// threads separately. Memory is charged by process.
var threadControllers = []string{"cpu", "cpuacct", "cpuset"}

// countsProcesses is the v1 controller whose cgroup Podman reads, at the same
// path as a container's in the memory controller. The pod's cgroup there holds
// the stand-ins (Join) but not the VM: a limit above it is meant for
// containers' processes, and QEMU dies when it cannot start a thread.
const countsProcesses = "pids"

func (h hierarchy) has(controllers ...string) bool {
	return slices.ContainsFunc(controllers, func(c string) bool { return slices.Contains(h.controllers, c) })
}

// limitsMemory reports whether this hierarchy limits memory.
func (h hierarchy) limitsMemory() bool { return h.unified || h.has("memory") }

// threadsFile has a cgroup's limit of threads.
const threadsFile = "pids.max"

// limitsThreads reports whether this hierarchy limits threads.
func (h hierarchy) limitsThreads() bool { return h.unified || h.has(countsProcesses) }

// limitsHugepages reports whether this hierarchy limits huge pages.
func (h hierarchy) limitsHugepages() bool { return h.unified || h.has("hugetlb") }

// dir returns the directory of a cgroup, given its path below the hierarchy's
// root.
func (h hierarchy) dir(path string) string { return filepath.Join(h.mount, path) }

// hierarchies finds the cgroup file systems at root: v2 if it is one, otherwise
// v1's mounted below it. A v2 tree beside v1's ("hybrid") has no controller
// that v1 uses, and is ignored.
func hierarchies(root string) ([]hierarchy, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(root, &fs); err != nil {
		return nil, fmt.Errorf("inspect %s: %w", root, err)
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list cgroup file systems: %w", err)
	}
	found := mounts(info, root, fs.Type == unix.CGROUP2_SUPER_MAGIC)
	if len(found) == 0 {
		return nil, fmt.Errorf("no cgroup file system is mounted at %s: %w", root, errdefs.ErrNotFound)
	}
	return found, nil
}

// mounts reads the cgroup hierarchies out of a mountinfo (proc(5)): the v2
// one at root, or the v1 ones below it.
func mounts(info []byte, root string, unified bool) []hierarchy {
	var found []hierarchy
	for line := range bytes.Lines(info) {
		// 36 35 98:0 /root /mount/point options... - type source options
		place, kind, ok := strings.Cut(string(line), " - ")
		fields, more := strings.Fields(place), strings.Fields(kind)
		if !ok || len(fields) < 5 || len(more) < 3 {
			continue
		}
		h := hierarchy{mount: fields[4], root: fields[3], unified: unified}
		switch {
		case unified && more[0] == "cgroup2" && h.mount == root:
			return []hierarchy{h}
		case !unified && more[0] == "cgroup" && strings.HasPrefix(h.mount, root+"/"):
			h.controllers = strings.Split(more[2], ",")
			found = append(found, h)
		}
	}
	return found
}

// of returns the directory of a process's cgroup, given its /proc/PID/cgroup.
func (h hierarchy) of(process []byte) string {
	for line := range bytes.Lines(process) {
		// hierarchy-ID:controller-list:cgroup-path (cgroups(7))
		fields := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(fields) < 3 || !h.named(fields[1]) {
			continue
		}
		if strings.HasPrefix(fields[2], "/..") {
			break // outside of this process's cgroup namespace (cgroup_namespaces(7))
		}
		if rel, err := filepath.Rel(h.root, fields[2]); err == nil && filepath.IsLocal(rel) {
			return h.dir(rel)
		}
	}
	return h.mount // its cgroup is not visible from here
}

// named reports whether a line of /proc/PID/cgroup with that list of
// controllers is for this hierarchy.
func (h hierarchy) named(list string) bool {
	if h.unified || list == "" {
		return h.unified && list == ""
	}
	return h.has(strings.Split(list, ",")...)
}
