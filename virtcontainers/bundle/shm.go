package bundle

import (
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// ShmBytes is the size of the file system that the engine has made to be the
// container's, and its pod's, /dev/shm; 0 if it has made none.
func (b *Bundle) ShmBytes() uint64 {
	for _, m := range slices.Backward(b.Spec.Mounts) { // the last mount is on top
		if path.Clean(m.Destination) != "/dev/shm" {
			continue
		}
		var st unix.Statfs_t
		if err := unix.Statfs(m.Source, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
			return 0 // Another kind of mount than a bind; or it is missed later.
		}
		return st.Blocks * uint64(st.Bsize)
	}
	return 0
}
