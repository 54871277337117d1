package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// emptyDir classifies a volume that lives as long as its pod; dir is its
// directory.
func (c *classifier) emptyDir(v Volume, src source, dir string) (Volume, error) {
	medium, err := mediumOf(dir)
	if err != nil {
		return v, fmt.Errorf("inspect volume: %w", err)
	}
	switch {
	case medium.magic == unix.TMPFS_MAGIC:
		v.Kind, v.Options = Memory, medium.within(c.opts.MemoryBytes).options(v.IDMap)
	case medium.magic == unix.HUGETLBFS_MAGIC:
		v.Kind, v.Options = Hugepages, medium.options(v.IDMap)
	case !c.opts.Share, c.opts.ImageDirs && v.IDMap == nil:
		// Nothing maps the owners of an image's files.
		v.Kind, v.Disk = Image, imageOf(dir)
	default:
		return v, nil
	}
	v.Key = dir
	return v, c.setSub(&v, src, dir)
}

// medium is what an emptyDir is on.
type medium struct {
	// magic is that of the volume's file system (statfs(2)), or 0 if the volume
	// is not a mount.
	magic int64
	// size and pageSize are in bytes; a size of 0 is no limit.
	size, pageSize uint64
	// inodes is how many files it may have; of a tmpfs 0 is no limit.
	inodes uint64
	owner  Owner
}

// mediumOf finds out what the kubelet has mounted (Kubernetes,
// pkg/volume/emptydir/empty_dir.go). A directory that is part of a larger
// tmpfs, as on a host without disks, counts as being on the host's files.
func mediumOf(dir string) (medium, error) {
	var here, above unix.Stat_t
	if err := unix.Stat(dir, &here); err != nil {
		return medium{}, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if err := unix.Stat(filepath.Dir(dir), &above); err != nil {
		return medium{}, &os.PathError{Op: "stat", Path: filepath.Dir(dir), Err: err}
	}
	m := medium{owner: Owner{Mode: here.Mode & 0o7777, UID: here.Uid, GID: here.Gid}}
	if here.Dev == above.Dev {
		return m, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return medium{}, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	m.magic, m.size, m.pageSize, m.inodes = st.Type, st.Blocks*uint64(st.Bsize), uint64(st.Bsize), st.Files
	return m, nil
}

// options returns the mount options that make an equal file system in the
// guest.
func (m medium) options(ids *guestspec.IDMap) []string {
	owner := m.owner.mapped(ids)
	options := []string{
		fmt.Sprintf("mode=%#o", owner.Mode), "uid=" + strconv.Itoa(int(owner.UID)), "gid=" + strconv.Itoa(int(owner.GID)),
	}
	if m.magic == unix.HUGETLBFS_MAGIC {
		options = append(options, "pagesize="+strconv.FormatUint(m.pageSize, 10))
	}
	if m.limited() {
		options = append(options, "size="+strconv.FormatUint(m.size, 10))
	}
	if m.magic == unix.TMPFS_MAGIC {
		// The guest's default is derived from its memory, which is less than the host's.
		options = append(options, "nr_inodes="+strconv.FormatUint(m.inodes, 10))
	}
	return options
}

// within returns a medium no larger than what the pod's containers may use together;
// 0 is no limit. Without a sizeLimit the kubelet gives a tmpfs the limit of the pod's
// cgroup, which has room for the runtime class's overhead, too.
func (m medium) within(memory uint64) medium {
	if memory > 0 {
		m.size = min(m.size, memory)
	}
	return m
}

// limited reports whether the size is a limit that a user set. Without one the
// kubelet gives a tmpfs the memory that the node has for pods (Kubernetes,
// pkg/volume/emptydir, calculateEmptyDirMemorySize), or the kernel gives it
// half of the memory (tmpfs(5)). Either is derived from the host's memory; in a
// guest, which is smaller, the kernel's default is half of the guest's. A
// hugetlbfs without a limit reports 0 (fs/hugetlbfs/inode.c, hugetlbfs_statfs).
func (m medium) limited() bool {
	if m.size == 0 || m.magic == unix.HUGETLBFS_MAGIC {
		return m.size != 0
	}
	var host unix.Sysinfo_t
	if err := unix.Sysinfo(&host); err != nil {
		return true
	}
	// The kernel counts pages; one page less than half is due to rounding.
	half := host.Totalram * uint64(host.Unit) / 2
	return m.size+m.pageSize < half
}

// mapped returns the owner as an idmapped mount shows it.
func (o Owner) mapped(ids *guestspec.IDMap) Owner {
	if ids == nil {
		return o
	}
	for _, m := range ids.UIDs {
		if o.UID >= m.ContainerID && o.UID-m.ContainerID < m.Size {
			o.UID += m.HostID - m.ContainerID
			break
		}
	}
	for _, m := range ids.GIDs {
		if o.GID >= m.ContainerID && o.GID-m.ContainerID < m.Size {
			o.GID += m.HostID - m.ContainerID
			break
		}
	}
	return o
}
