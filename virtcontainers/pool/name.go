package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// namespaces are those of a shim, by their names in /proc/PID/ns.
var namespaces = []string{"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"}

// nameBytes is how much of the hash is used.
const nameBytes = 16

// NameOf returns the name of the spares that can be the shims of an engine's
// pods: those of the same configuration file, program, namespaces, and cgroups
// at the start (hostcgroup.Self), ordered by a shim of the same engine. Except
// for the cgroups, it reads this process's.
func NameOf(engine, config string, cgroups []byte) (string, error) {
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q %q", engine, config, cgroups)
	for _, path := range []string{"/proc/self/exe", "/proc/self/root"} {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return "", &os.PathError{Op: "stat", Path: path, Err: err}
		}
		fmt.Fprintf(hash, " %d %d", st.Dev, st.Ino)
		if path == "/proc/self/exe" {
			fmt.Fprintf(hash, " %d %d", st.Size, st.Mtim.Nano())
		}
	}
	for _, ns := range namespaces {
		is, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, " %s", is)
	}
	return hex.EncodeToString(hash.Sum(nil)[:nameBytes]), nil
}
