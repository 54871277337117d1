package passthrough

import "golang.org/x/sys/unix"

// Values of tree.contents.
const (
	unknown int32 = iota // no file of it has been opened
	stored
	generated
)

// isGenerated reports whether the kernel makes the contents of a tree's files when they
// are read, as in proc(5), sysfs(5) and cgroups(7). Neither their length nor their time
// of modification says anything then: a guest that caches finds most of them empty, and
// the others as they were once. fd is an open file of the tree; the file system is
// asked only once.
func (t *tree) isGenerated(fd int) bool {
	if known := t.contents.Load(); known != unknown {
		return known == generated
	}
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) != nil {
		return false
	}
	found := stored
	if generates(fs.Type) {
		found = generated
	}
	t.contents.Store(found)
	return found == generated
}

// configFS is CONFIGFS_MAGIC of fs/configfs/mount.c.
const configFS = 0x62656570

// generates reports whether a file system of a type, of statfs(2), has contents that
// the kernel makes.
func generates(kind int64) bool {
	switch kind {
	case unix.PROC_SUPER_MAGIC, unix.BINFMTFS_MAGIC,
		unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, configFS,
		unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.RDTGROUP_SUPER_MAGIC,
		unix.SELINUX_MAGIC, unix.SMACK_MAGIC, unix.AAFS_MAGIC:
		return true
	}
	return false
}
