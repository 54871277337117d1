package hostcgroup

import (
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"
)

// overheadDir holds the overhead cgroups of all pods.
const overheadDir = "/kata_overhead"

// namePrefix begins the name of a pod's cgroup, as with Kata Containers.
const namePrefix = "kata_"

// podPath returns the path of a pod's cgroup below a hierarchy's root: beside
// the cgroup that the engine chose.
func podPath(cgroupsPath, name string) (string, error) {
	parent, err := parentOf(cgroupsPath)
	if err != nil {
		return "", fmt.Errorf("cgroups path %q: %w: %w", cgroupsPath, err, errdefs.ErrInvalidArgument)
	}
	return path.Join(parent, namePrefix+name), nil
}

// containerPath returns the path below a hierarchy's root of the cgroup that an
// OCI spec names for a container. With systemd it is that of a scope (runc's
// docs/systemd.md): prefix-name.scope in its slice.
func containerPath(cgroupsPath string) (string, error) {
	parent, err := parentOf(cgroupsPath)
	if err != nil {
		return "", fmt.Errorf("cgroups path %q: %w: %w", cgroupsPath, err, errdefs.ErrInvalidArgument)
	}
	name := path.Base(path.Clean("/" + cgroupsPath))
	if fields := strings.Split(cgroupsPath, ":"); len(fields) == 3 && !strings.Contains(fields[0], "/") {
		if name = fields[2]; fields[1] != "" {
			name = fields[1] + "-" + name
		}
		name += ".scope"
	}
	if name == "/" || strings.Contains(name, "/") {
		return "", fmt.Errorf("cgroups path %q names no cgroup for a container: %w", cgroupsPath, errdefs.ErrInvalidArgument)
	}
	return path.Join(parent, name), nil
}

// parentOf returns the parent of the cgroup that an OCI spec names, in one of
// two forms: a path ("/kubepods/pod1/c1"; a relative one is relative to the
// root too, as the runtime may choose), or runc's form for systemd, slice,
// prefix and name ("kubepods-pod1.slice:cri-containerd:c1"), whose parent is
// the slice.
func parentOf(cgroupsPath string) (string, error) {
	if strings.ContainsAny(cgroupsPath, "\x00\n") { // the kernel allows neither in a name
		return "", fmt.Errorf("a cgroup's name can contain neither a NUL nor a newline")
	}
	slice, rest, _ := strings.Cut(cgroupsPath, ":")
	if strings.Count(rest, ":") == 1 && !strings.Contains(slice, "/") {
		return slicePath(slice)
	}
	return path.Dir(path.Clean("/" + cgroupsPath)), nil
}

// defaultSlice is where systemd puts units without a slice.
const defaultSlice = "system.slice"

// slicePath returns the path of a systemd slice: its name contains its parents'
// names, so a-b.slice is in a.slice (systemd.slice(5)).
func slicePath(slice string) (string, error) {
	if slice == "" {
		slice = defaultSlice
	}
	name, ok := strings.CutSuffix(slice, ".slice")
	if !ok {
		return "", fmt.Errorf("%q is not a slice", slice)
	}
	if name == "-" { // the root slice
		return "/", nil
	}
	full, prefix := "/", ""
	for part := range strings.SplitSeq(name, "-") {
		if part == "" {
			return "", fmt.Errorf("slice %q has an empty part in its name", slice)
		}
		prefix += part
		full = path.Join(full, prefix+".slice")
		prefix += "-"
	}
	return full, nil
}
