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

// NoLimit is the value of a limit that is not set. Values from atLeast on are NoLimit: v1
// rounds its largest value down to whole pages, and no host has that much of anything.
const (
	NoLimit = math.MaxUint64
	atLeast = 1 << 62
)

// memoryLimit returns the least memory limit, in bytes, of a cgroup and its
// ancestors, also of v2's memory.high (Limits).
func (h hierarchy) memoryLimit(dir string) (uint64, error) {
	files := []string{h.memoryFile()}
	if h.unified {
		files = append(files, "memory.high")
	}
	least, _, err := h.leastAbove(dir, files...)
	return least, err
}

// leastAbove returns the least limit in those files of a cgroup and its ancestors, and
// the path of the file that has it.
func (h hierarchy) leastAbove(dir string, files ...string) (least uint64, path string, err error) {
	least = NoLimit
	for ; ; dir = filepath.Dir(dir) {
		for _, file := range files {
			file = filepath.Join(dir, file)
			limit, err := readLimit(file)
			if err != nil {
				return 0, "", err
			}
			if limit < least {
				least, path = limit, file
			}
		}
		if dir == h.mount {
			return least, path, nil
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
		return NoLimit, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read limit: %w", err)
	}
	text := strings.TrimSpace(string(data))
	if text == "max" {
		return NoLimit, nil
	}
	limit, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read limit: %s: %w", path, err)
	}
	if limit >= atLeast {
		return NoLimit, nil
	}
	return limit, nil
}
