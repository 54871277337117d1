package spec

import (
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// ParseVolume parses HOST:CONTAINER[:ro|rw]. The host's path must exist: creating
// a directory for a mistyped name would hide the mistake.
func ParseVolume(text string) (specs.Mount, error) {
	parts := strings.Split(text, ":")
	bad := func(why string) (specs.Mount, error) {
		return specs.Mount{}, fmt.Errorf("volume %q: %s: want HOST:CONTAINER or HOST:CONTAINER:ro: %w", text, why, errdefs.ErrInvalidArgument)
	}
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" {
		return bad("it does not have two or three parts")
	}
	if !path.IsAbs(parts[1]) {
		return bad("the container's path is not absolute")
	}
	source, err := filepath.Abs(parts[0])
	if err != nil {
		return bad(err.Error())
	}
	if _, err := os.Stat(source); err != nil {
		return specs.Mount{}, fmt.Errorf("volume %q: %w", text, err)
	}
	mode := "rw"
	if len(parts) == 3 {
		mode = parts[2]
	}
	if mode != "ro" && mode != "rw" {
		return bad("unknown option " + mode)
	}
	return specs.Mount{Type: "bind", Source: source, Destination: path.Clean(parts[1]), Options: []string{"rbind", "rprivate", mode}}, nil
}

// ParseWorkdir parses an absolute path, or "" for the image's own. A relative
// path is refused, because its base would be unclear.
func ParseWorkdir(text string) (string, error) {
	if text != "" && !path.IsAbs(text) {
		return "", fmt.Errorf("workdir %q: want an absolute path: %w", text, errdefs.ErrInvalidArgument)
	}
	return text, nil
}

// ParseTmpfs parses CONTAINER[:OPTIONS], with the options of a tmpfs.
func ParseTmpfs(text string) (specs.Mount, error) {
	target, options, _ := strings.Cut(text, ":")
	if !path.IsAbs(target) {
		return specs.Mount{}, fmt.Errorf("tmpfs %q: the path is not absolute: %w", text, errdefs.ErrInvalidArgument)
	}
	m := specs.Mount{Type: "tmpfs", Source: "tmpfs", Destination: path.Clean(target), Options: []string{"nosuid", "nodev", "noexec"}}
	if options != "" {
		m.Options = append(m.Options, strings.Split(options, ",")...)
	}
	return m, nil
}

// OrderMounts sorts mounts so that none hides another: a directory's comes before
// those of the directories in it. Two mounts of one destination are refused.
func OrderMounts(mounts []specs.Mount) ([]specs.Mount, error) {
	sorted := slices.SortedFunc(slices.Values(mounts), func(a, b specs.Mount) int {
		return strings.Compare(a.Destination, b.Destination)
	})
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Destination == sorted[i-1].Destination {
			return nil, fmt.Errorf("two volumes or tmpfs for %s: want one: %w", sorted[i].Destination, errdefs.ErrInvalidArgument)
		}
	}
	return sorted, nil
}

// ParseMemory parses a number of bytes with the suffix b, k, m or g.
func ParseMemory(text string) (int64, error) {
	bad := fmt.Errorf("memory %q: want a number with b, k, m or g, such as 512m: %w", text, errdefs.ErrInvalidArgument)
	number := strings.ToLower(text)
	shift := 0
	for unit, s := range map[string]int{"b": 0, "k": 10, "m": 20, "g": 30} {
		if rest, ok := strings.CutSuffix(number, unit); ok {
			number, shift = rest, s
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64>>shift {
		return 0, bad
	}
	return n << shift, nil
}

// ParseCPUs parses a number of processors.
func ParseCPUs(text string) (float64, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0.01 && n <= 1024) {
		return 0, fmt.Errorf("cpus %q: want a number from 0.01 to 1024: %w", text, errdefs.ErrInvalidArgument)
	}
	return n, nil
}
