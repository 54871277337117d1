package guest

// protections keep a user from what another one has put into a directory that everyone
// may write to (mode 1777), as /tmp and a pod's one /dev/shm are; the numbers are those of
// Documentation/admin-guide/sysctl/fs.rst. Linux begins without them, and Debian's kernel
// with those of links only. On a host they come from files: these values are those of
// Debian's procps (/usr/lib/sysctl.d/99-protect-links.conf).
var protections = map[string]uint64{
	"fs/protected_symlinks":  1,
	"fs/protected_hardlinks": 1,
	"fs/protected_fifos":     1,
	"fs/protected_regular":   2, // also in such directories of a group
}

// protectFiles sets them. proc is where procfs is mounted.
func protectFiles(proc string) error { return setSysctls(proc, protections) }
