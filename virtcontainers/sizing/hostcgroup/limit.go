package hostcgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// noLimit is the value for no memory limit.
const noLimit = math.MaxUint64

// memoryLimit returns the least memory limit, in bytes, of a cgroup and its
// ancestors. Above v2's memory.high, which the kubelet sets with MemoryQoS, the kernel
// slows down every thread that needs memory, and a guest does not give it back: a
// machine has to stay below that, too.
func (h hierarchy) memoryLimit(dir string) (uint64, error) {
	files := []string{h.memoryFile()}
	if h.unified {
		files = append(files, "memory.high")
	}
	return h.leastAbove(dir, files...)
}

// leastAbove returns the least limit in those files of a cgroup and its ancestors.
func (h hierarchy) leastAbove(dir string, files ...string) (uint64, error) {
	least := uint64(noLimit)
	for ; ; dir = filepath.Dir(dir) {
		for _, file := range files {
			limit, err := readLimit(filepath.Join(dir, file))
			if err != nil {
				return 0, err
			}
			least = min(least, limit)
		}
		if dir == h.mount {
			return least, nil
		}
	}
}

// memoryFile returns the name of the file with a cgroup's memory limit.
func (h hierarchy) memoryFile() string {
	if h.unified {
		return "memory.max"
	}
	return "memory.limit_in_bytes"
}

// readLimit reads one cgroup's limit. v2's root has none, nor has a cgroup
// whose parent has not enabled the controller.
func readLimit(path string) (uint64, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return noLimit, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read limit: %w", err)
	}
	text := strings.TrimSpace(string(data))
	if text == "max" {
		return noLimit, nil
	}
	limit, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read limit: %s: %w", path, err)
	}
	return limit, nil
}

// MemoryLimit returns the least memory limit (or v2's memory.high), in bytes, above a
// pod's cgroup: of the ancestors of the one that the engine chose for the sandbox's own
// container (cgroupsPath). Without a limit it is larger than any host's memory.
// root is where the host's cgroup file systems are; empty is DefaultRoot.
func MemoryLimit(root, cgroupsPath string) (uint64, error) {
	return leastLimit(root, cgroupsPath, hierarchy.limitsMemory, hierarchy.memoryLimit)
}

// ParentLimit is the memory limit of the closest ancestor alone. Of a pod of
// Kubernetes that is the cgroup of the kubelet for the pod.
type ParentLimit struct {
	// files has one for each hierarchy that limits memory.
	files []string
}

// OpenParentLimit finds where the limit is; the arguments are MemoryLimit's.
func OpenParentLimit(root, cgroupsPath string) (*ParentLimit, error) {
	l := new(ParentLimit)
	_, err := leastLimit(root, cgroupsPath, hierarchy.limitsMemory, func(h hierarchy, dir string) (uint64, error) {
		l.files = append(l.files, filepath.Join(dir, h.memoryFile()))
		return noLimit, nil
	})
	return l, err
}

// Bytes returns the limit as it is now. Without one it is larger than any host's memory.
func (l *ParentLimit) Bytes() (uint64, error) {
	least := uint64(noLimit)
	for _, file := range l.files {
		here, err := readLimit(file)
		if err != nil {
			return 0, err
		}
		least = min(least, here)
	}
	return least, nil
}

// ParentThreads returns how many threads may be in the closest ancestor, for a pod of
// Kubernetes the kubelet's cgroup for it; 0 is no limit. The arguments are MemoryLimit's.
func ParentThreads(root, cgroupsPath string) (uint64, error) {
	most, err := leastLimit(root, cgroupsPath, hierarchy.limitsThreads, func(_ hierarchy, dir string) (uint64, error) {
		return readLimit(filepath.Join(dir, threadsFile))
	})
	if most == noLimit {
		most = 0
	}
	return most, err
}

// leastLimit returns the least of what limit reads in the parents of a pod's cgroup, in
// the hierarchies that have such a limit.
func leastLimit(root, cgroupsPath string, has func(hierarchy) bool, limit func(h hierarchy, parent string) (uint64, error)) (uint64, error) {
	if root == "" {
		root = DefaultRoot
	}
	path, err := podPath(cgroupsPath, "pod")
	if err != nil {
		return 0, err
	}
	found, err := hierarchies(root)
	if err != nil {
		return 0, err
	}
	least := uint64(noLimit)
	for _, h := range found {
		if !has(h) {
			continue
		}
		here, err := limit(h, filepath.Dir(h.dir(path)))
		if err != nil {
			return 0, err
		}
		least = min(least, here)
	}
	return least, nil
}
