package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// dropBindData removes file system options from bind mounts, in place, and
// returns them for the log. mount(2) ignores them on a bind mount; libcontainer
// refuses the container (configs/validate, checkBindOptions). iSulad sets size= on
// the bind mount of every container's /dev/shm.
func dropBindData(mounts []specs.Mount) (dropped []string) {
	known := specconv.KnownMountOptions()
	for i := range mounts {
		m := &mounts[i]
		if !isBind(m) {
			continue
		}
		var kept []string
		for _, option := range m.Options {
			if slices.Contains(known, option) {
				kept = append(kept, option)
			} else {
				dropped = append(dropped, fmt.Sprintf("%q at %s", option, m.Destination))
			}
		}
		m.Options = kept
	}
	return dropped
}

// fitNoswap removes the option noswap from mounts of tmpfs, in place, unless the kernel
// takes it (Linux 6.4). A guest has no swap, and a kernel that does not know the option
// refuses the mount.
func fitNoswap(mounts []specs.Mount, takes func() bool) {
	const option = "noswap"
	for i := range mounts {
		m := &mounts[i]
		if m.Type == "tmpfs" && slices.Contains(m.Options, option) && !takes() {
			m.Options = slices.DeleteFunc(slices.Clone(m.Options), func(o string) bool { return o == option })
		}
	}
}

// fitTmpfs gives each tmpfs without a size as much as the container may use, in place, if
// Linux would give it less: half of the memory that the guest has then (mm/shmem.c,
// shmem_default_max_blocks), where a host often has many times of what the container may
// use. It has as many files as pages, Linux's own proportion. Both are charged to the
// container. total is the guest's memory in bytes.
func fitTmpfs(mounts []specs.Mount, limits *specs.LinuxResources, total uint64) {
	size := min(memoryLimit(limits), total)
	if size <= total/2 {
		return
	}
	for i := range mounts {
		m := &mounts[i]
		if m.Type != "tmpfs" || isBind(m) || hasOption(m, "size", "nr_blocks", "remount") {
			continue
		}
		m.Options = append(slices.Clone(m.Options), fmt.Sprintf("size=%d", size))
		if !hasOption(m, "nr_inodes") {
			m.Options = append(m.Options, fmt.Sprintf("nr_inodes=%d", size/uint64(os.Getpagesize())))
		}
	}
}

// totalMemory is the guest's, in bytes.
func totalMemory() uint64 {
	var info unix.Sysinfo_t
	_ = unix.Sysinfo(&info) // It fails only for a bad address (sysinfo(2)).
	return info.Totalram * uint64(info.Unit)
}

// memoryLimit is a container's limit in bytes, 0 if it has none.
func memoryLimit(limits *specs.LinuxResources) uint64 {
	if limits == nil || limits.Memory == nil || limits.Memory.Limit == nil || *limits.Memory.Limit < 0 {
		return 0
	}
	return uint64(*limits.Memory.Limit)
}

// hasOption reports whether a mount has one of the options, with or without a value.
func hasOption(m *specs.Mount, names ...string) bool {
	return slices.ContainsFunc(m.Options, func(o string) bool {
		name, _, _ := strings.Cut(o, "=")
		return slices.Contains(names, name)
	})
}

// takesNoswap reports whether the kernel's tmpfs has the option noswap.
func takesNoswap() bool {
	fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.FsconfigSetFlag(fd, "noswap") == nil
}

// isBind reports whether libcontainer takes m for a bind mount
// (specconv, createLibcontainerMount).
func isBind(m *specs.Mount) bool {
	return m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}

// checkSources fails with errdefs.ErrNotFound if the source of a bind mount is the
// guest's own and does not exist: the path may well exist on the host, which is where a
// user will look.
func checkSources(mounts []specs.Mount) error {
	for i := range mounts {
		m := &mounts[i]
		if !isBind(m) || !isOwn(m.Source) {
			continue
		}
		if _, err := os.Lstat(m.Source); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("mount at %s: the guest has no %s: sources below /dev, /proc and /sys are the guest's: %w", m.Destination, m.Source, errdefs.ErrNotFound)
		}
	}
	return nil
}

func isOwn(source string) bool {
	return slices.ContainsFunc([]string{"/dev/", "/proc/", "/sys/"}, func(dir string) bool { return strings.HasPrefix(filepath.Clean(source), dir) })
}

// checkSysfs refuses the mount of a sysfs at a link in the root of a container with a user
// namespace, as libcontainer does: it does not see that the bind mount that adjust makes
// of it was a sysfs.
func checkSysfs(spec *specs.Spec) error {
	if spec.Root == nil || !HasGuestNodes(spec) {
		return nil
	}
	for i := range spec.Mounts {
		m := &spec.Mounts[i]
		if m.Type != "sysfs" {
			continue
		}
		if err := checkOrdinary(spec.Root.Path, m.Destination); err != nil {
			return fmt.Errorf("mount at %s: %w", m.Destination, err)
		}
	}
	return nil
}

func checkOrdinary(root, name string) error {
	dir, err := os.Open(root)
	if err != nil {
		return fmt.Errorf("open root: %w", err)
	}
	defer dir.Close()
	fd, err := unix.Openat2(int(dir.Fd()), filepath.Clean("/"+name), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil // It is missing, or the mount itself fails.
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("inspect mount point: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return errors.New(`filesystem "sysfs" must be mounted on ordinary directory`)
	}
	return nil
}
