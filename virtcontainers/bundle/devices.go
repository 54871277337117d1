package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Node is a device as a container sees it.
type Node struct {
	Path string
	// Mode is the node's permission bits, UID and GID its owner.
	Mode, UID, GID uint32
	// Access is what the container may do with it: some of "r", "w" and "m", in
	// this order.
	Access string
	// Optional is set if the container can do without the device: it was not requested by
	// itself.
	Optional bool
}

// BlockDevice is a disk of the host that a container gets.
type BlockDevice struct {
	Node
	// HostPath is one of its nodes on the host.
	HostPath string
}

// ReadOnly reports whether the container may not write to it.
func (d BlockDevice) ReadOnly() bool { return !strings.Contains(d.Access, "w") }

const (
	allAccess = "rwm"
	// defaultMode is the mode that runc gives a node if the spec names none
	// (libcontainer/specconv).
	defaultMode = 0o666
)

// BlockDevices lists the block devices that the spec gives its container, with
// the host's nodes of the same numbers: a path in the spec is one in the
// container. It fails with errdefs.ErrNotFound for a number for which the host
// has no node.
//
// The spec of a container that may use every device (privileged) may list all of
// the host's. Of the disks in such a list it returns those that were requested
// individually, and those of which the host has a node at a path that matches a
// pattern (filepath.Match): they are Optional. Of several devices with the same
// path the first counts, as with runc.
func BlockDevices(spec *specs.Spec, patterns []string) ([]BlockDevice, error) {
	return hostDevices{sys: "/sys", dev: "/dev"}.list(spec, patterns)
}

// hostDevices is where the host has its block devices.
type hostDevices struct{ sys, dev string }

func (h hostDevices) list(spec *specs.Spec, patterns []string) ([]BlockDevice, error) {
	rules := deviceRules(spec)
	privileged := allowsAll(rules)
	var all []BlockDevice
	for _, d := range spec.Linux.Devices {
		if d.Type != "b" || isGuestLoop(d, spec) || slices.ContainsFunc(all, func(other BlockDevice) bool { return other.Path == d.Path }) {
			continue
		}
		b := BlockDevice{Node: nodeOf(d)}
		b.Access = accessOf(d, "b", rules)
		if privileged {
			b.Access, b.Optional = allAccess, listsAll(spec) && !requested(d, spec)
		}
		if b.Access == "" || b.Optional && !h.chosen(d, patterns) {
			continue
		}
		var err error
		if b.HostPath, err = h.node(d); b.Optional && errdefs.IsNotFound(err) {
			continue // it has just been removed
		}
		if err != nil {
			return nil, fmt.Errorf("device %s, block device %d:%d: %w", d.Path, d.Major, d.Minor, err)
		}
		all = append(all, b)
	}
	return all, nil
}

// listsAll reports whether the spec lists all of the host's devices. /dev/null is
// never requested individually: every container has it.
func listsAll(spec *specs.Spec) bool {
	return slices.ContainsFunc(spec.Linux.Devices, func(d specs.LinuxDevice) bool { return d.Type == "c" && d.Major == 1 && d.Minor == 3 })
}

// requested reports whether a device in a list of all was also requested
// individually: it is listed twice (by containerd), has a rule (by CRI-O), or is
// listed at the host's path and at one where the host has no disk.
//
// A list may be older than the host's last boot, and a device's number another
// one's by now: a path that is not of that number says nothing by itself.
func requested(d specs.LinuxDevice, spec *specs.Spec) bool {
	times, listed := 0, false
	for _, other := range spec.Linux.Devices {
		if other.Type != d.Type || other.Major != d.Major || other.Minor != d.Minor {
			continue
		}
		if other.Path == d.Path {
			times++
		}
		listed = listed || isNodeOf(other.Path, other)
	}
	return times > 1 || listed && !isDisk(d.Path) || slices.ContainsFunc(deviceRules(spec), func(r specs.LinuxDeviceCgroup) bool {
		return r.Allow && r.Type == "b" && !anyNumber(r.Major) && !anyNumber(r.Minor) && *r.Major == d.Major && *r.Minor == d.Minor
	})
}

// chosen reports whether a path that matches one of the patterns leads to the
// device, symbolic links included. Patterns with wildcards match no partitions: the
// names that udev gives to a disk and to its parts begin alike.
func (h hostDevices) chosen(d specs.LinuxDevice, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if strings.ContainsAny(pattern, `*?[\`) && h.isPartition(d) {
			return false
		}
		paths, _ := filepath.Glob(pattern) // the configuration has checked it
		return slices.ContainsFunc(paths, func(path string) bool { return isNodeOf(path, d) })
	})
}

// isPartition reports whether a block device is a part of a disk (Linux's
// Documentation/ABI/testing/sysfs-block).
func (h hostDevices) isPartition(d specs.LinuxDevice) bool {
	_, err := os.Stat(filepath.Join(h.sys, "dev/block", fmt.Sprintf("%d:%d", d.Major, d.Minor), "partition"))
	return err == nil
}

// nodeOf is a device's node with the mode and owner that runc gives it, and all access.
func nodeOf(d specs.LinuxDevice) Node {
	n := Node{Path: d.Path, Mode: defaultMode, Access: allAccess}
	if d.FileMode != nil {
		n.Mode = uint32(d.FileMode.Perm())
	}
	if d.UID != nil {
		n.UID = *d.UID
	}
	if d.GID != nil {
		n.GID = *d.GID
	}
	return n
}

func deviceRules(spec *specs.Spec) []specs.LinuxDeviceCgroup {
	if spec.Linux.Resources == nil {
		return nil
	}
	return spec.Linux.Resources.Devices
}

// allowsAll reports whether the rules, taken together, allow every access to
// every device. BuildKit has one rule for block and one for character devices.
func allowsAll(rules []specs.LinuxDeviceCgroup) bool {
	return allowsKind(rules, "b") && allowsKind(rules, "c")
}

// allowsKind is allowsAll for devices of one type.
func allowsKind(rules []specs.LinuxDeviceCgroup, kind string) bool {
	allowed := false
	for _, r := range rules {
		if isOf(r, kind) && anyNumber(r.Major) && anyNumber(r.Minor) && without(allAccess, accessIn(r)) == "" {
			allowed = r.Allow
		}
	}
	return allowed
}

// accessOf returns the access that the rules for the device's number and kind
// allow; later rules take precedence (Linux's
// Documentation/admin-guide/cgroup-v1/devices.rst). Without any rule it is all
// access.
func accessOf(d specs.LinuxDevice, kind string, rules []specs.LinuxDeviceCgroup) string {
	access, named := "", false
	for _, r := range rules {
		if !isOf(r, kind) || anyNumber(r.Major) || *r.Major != d.Major || !anyNumber(r.Minor) && *r.Minor != d.Minor {
			continue
		}
		named = true
		access = without(access, accessIn(r))
		if r.Allow {
			access += accessIn(r)
		}
	}
	if !named {
		return allAccess
	}
	return without(allAccess, without(allAccess, access))
}

// isOf reports whether a rule applies to devices of a type: to these alone
// ("b"), or to all ("a", or none).
func isOf(r specs.LinuxDeviceCgroup, kind string) bool {
	return r.Type == kind || r.Type == "a" || r.Type == ""
}

func anyNumber(n *int64) bool { return n == nil || *n == -1 }

// accessIn is the access that a rule is about.
func accessIn(r specs.LinuxDeviceCgroup) string {
	if r.Access == "" {
		return allAccess
	}
	return r.Access
}

// without returns the letters of access that are not in less.
func without(access, less string) string {
	return strings.Map(func(letter rune) rune {
		if strings.ContainsRune(less, letter) {
			return -1
		}
		return letter
	}, access)
}

// node finds the device's node on the host: by the kernel's name for it, or
// else by its path in the container.
func (h hostDevices) node(d specs.LinuxDevice) (string, error) {
	name, err := h.kernelName("block", d)
	if err != nil {
		return "", err
	}
	nodes := []string{filepath.Join(h.dev, filepath.Join("/", name)), d.Path}
	for _, node := range nodes {
		if isNodeOf(node, d) {
			return node, nil
		}
	}
	return "", fmt.Errorf("neither %s is a node of it on the host: %w", strings.Join(nodes, " nor "), errdefs.ErrNotFound)
}

// kernelName reads DEVNAME, a path below /dev, of the device's uevent file
// (drivers/base/core.c, dev_uevent). kind is "block" or "char".
func (h hostDevices) kernelName(kind string, d specs.LinuxDevice) (string, error) {
	data, err := os.ReadFile(filepath.Join(h.sys, "dev", kind, fmt.Sprintf("%d:%d", d.Major, d.Minor), "uevent"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the host has no such device: %w", errdefs.ErrNotFound)
	}
	if err != nil {
		return "", fmt.Errorf("find its node on the host: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVNAME="); ok {
			return name, nil
		}
	}
	return "", fmt.Errorf("find its node on the host: its uevent file has no name of it (DEVNAME): %w", errdefs.ErrNotFound)
}

func isNodeOf(path string, d specs.LinuxDevice) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK &&
		int64(unix.Major(st.Rdev)) == d.Major && int64(unix.Minor(st.Rdev)) == d.Minor
}

// isDisk reports whether the host has a block device at a path.
func isDisk(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK
}
