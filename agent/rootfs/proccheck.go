package rootfs

import (
	"fmt"
	"slices"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// procFiles are the files in /proc that may be mounted on: lxcfs has them.
var procFiles = []string{
	"/cpuinfo",
	"/diskstats",
	"/loadavg",
	"/meminfo",
	"/slabinfo",
	"/stat",
	"/swaps",
	"/uptime",
	"/sys/crypto/fips_enabled",
	"/sys/kernel/ns_last_pid",
}

// checkProc refuses a mount at a path in /proc, other than on procFiles, and a
// mount on /proc that is not a proc. Programs trust what they read there, and
// masks are placed there. source is a bind mount's.
func (r *Root) checkProc(at string, m *configs.Mount, source int) error {
	rest, ok := cutDir(at, r.path+"/proc")
	switch {
	case !ok || slices.Contains(procFiles, rest):
		return nil
	case rest != "":
		return fmt.Errorf("%q cannot be mounted because it is inside /proc", at)
	case source == noSource:
		ok = m.Device == "proc"
	default:
		var st unix.Statfs_t
		if err := unix.Fstatfs(source, &st); err != nil {
			return fmt.Errorf("find type of %s: %w", m.Source, err)
		}
		ok = st.Type == unix.PROC_SUPER_MAGIC
	}
	if !ok {
		return fmt.Errorf("%q cannot be mounted because it is not of type proc", at)
	}
	return nil
}
