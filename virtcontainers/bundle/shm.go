package bundle

import (
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// ShmBytes returns the size of the file system that the engine made for
// /dev/shm of the container and its pod; 0 if it made none.
func (b *Bundle) ShmBytes() uint64 {
	for _, m := range slices.Backward(b.Spec.Mounts) { // the last mount is on top
		if path.Clean(m.Destination) != "/dev/shm" {
			continue
		}
		var st unix.Statfs_t
		if err := unix.Statfs(m.Source, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
			return 0 // Not a bind mount; or the source is missing, which is reported later.
		}
		return st.Blocks * uint64(st.Bsize)
	}
	return 0
}
