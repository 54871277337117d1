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

// noLimit is a memory limit that is none.
const noLimit = math.MaxUint64

// memoryLimit is the least memory limit, in bytes, of a cgroup and those
// around it.
func (h hierarchy) memoryLimit(dir string) (uint64, error) {
	file := h.memoryFile()
	least := uint64(noLimit)
	for ; ; dir = filepath.Dir(dir) {
		limit, err := readLimit(filepath.Join(dir, file))
		if err != nil {
			return 0, err
		}
		least = min(least, limit)
		if dir == h.mount {
			return least, nil
		}
	}
}

// memoryFile has a cgroup's memory limit.
func (h hierarchy) memoryFile() string {
	if h.unified {
		return "memory.max"
	}
	return "memory.limit_in_bytes"
}

// readLimit reads one cgroup's limit. The root of v2 has none, nor has a
// cgroup whose parent has the controller not turned on.
func readLimit(path string) (uint64, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return noLimit, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read memory limit: %w", err)
	}
	text := strings.TrimSpace(string(data))
	if text == "max" {
		return noLimit, nil
	}
	limit, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read memory limit: %s: %w", path, err)
	}
	return limit, nil
}

// MemoryLimit is the least memory limit, in bytes, of the cgroups around a pod's:
// those above the one that the engine chose for the sandbox's own container
// (cgroupsPath). Where there is none it is beyond what a host has. root is where
// the host's cgroup file systems are; empty is DefaultRoot.
func MemoryLimit(root, cgroupsPath string) (uint64, error) {
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
		if !h.limitsMemory() {
			continue
		}
		limit, err := h.memoryLimit(filepath.Dir(h.dir(path)))
		if err != nil {
			return 0, err
		}
		least = min(least, limit)
	}
	return least, nil
}
