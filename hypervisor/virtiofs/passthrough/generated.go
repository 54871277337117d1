package passthrough

import "golang.org/x/sys/unix"

// Values of tree.contents: where the contents of a tree's files come from.
const (
	unknown   int32 = iota // no file of it has been opened
	stored                 // they are stored: their length and times are right
	remote                 // likewise, on an NFS server (remove.go)
	generated              // the kernel makes them, as in sysfs(5), cgroups(7)
	processes              // likewise, and they are about processes: proc(5)
	served                 // a process serves them (FUSE) and may do either
)

// isGenerated reports whether the contents of a file are made when they are read, so that
// neither its length nor its time of modification says anything: a guest that caches finds
// most such files empty, and the others as they were once. fd is the open file, flags are
// the open's; the tree's file system is asked only once.
//
// Whether a FUSE file system generates a file only its own kernel knows (FOPEN_DIRECT_IO).
// One without a length that is opened for reading alone counts as generated: if it is
// empty, that costs nothing, but a file that is also written may be mapped later, which
// the guest's kernel refuses for such files.
func (t *tree) isGenerated(fd int, flags uint32) bool {
	kind := t.source(fd)
	if kind != served || flags&unix.O_ACCMODE != unix.O_RDONLY {
		return kind == generated || kind == processes
	}
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Size == 0
}

// source returns where the contents of the tree's files come from, one of which fd is.
func (t *tree) source(fd int) int32 {
	kind := t.contents.Load()
	if kind == unknown {
		kind = contentsOf(fd)
		t.contents.Store(kind)
	}
	return kind
}

// contentsOf returns where the contents of a file system's files come from; unknown if it
// does not answer.
func contentsOf(fd int) int32 {
	var fs unix.Statfs_t
	switch {
	case unix.Fstatfs(fd, &fs) != nil:
		return unknown
	case fs.Type == unix.PROC_SUPER_MAGIC:
		return processes
	case generates(fs.Type):
		return generated
	case fs.Type == unix.NFS_SUPER_MAGIC:
		return remote
	case fs.Type == unix.FUSE_SUPER_MAGIC:
		return served
	}
	return stored
}

// Magic numbers that golang.org/x/sys lacks.
const (
	configFS  = 0x62656570 // CONFIGFS_MAGIC of fs/configfs/mount.c
	fuseCtl   = 0x65735543 // FUSE_CTL_SUPER_MAGIC of fs/fuse/control.c
	nfsd      = 0x6e667364 // NFSD's magic of fs/nfsd/nfsctl.c
	rpcPipeFS = 0x67596969 // RPCAUTH_GSSMAGIC of net/sunrpc/rpc_pipe.c
)

// generates reports whether a file system of a type, of statfs(2), has contents that
// the kernel makes, apart from proc(5).
func generates(kind int64) bool {
	switch kind {
	case unix.BINFMTFS_MAGIC,
		unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, configFS,
		unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.RDTGROUP_SUPER_MAGIC,
		fuseCtl, nfsd, rpcPipeFS, unix.SELINUX_MAGIC, unix.SMACK_MAGIC, unix.AAFS_MAGIC:
		return true
	}
	return false
}
