package bundle

import (
	"context"
	"fmt"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/intime"
)

// ShmBytes returns the size of the file system that the engine made for
// /dev/shm of the container and its pod; 0 if it made none. It fails if the mount's
// source does not answer within ctx.
func (b *Bundle) ShmBytes(ctx context.Context) (uint64, error) {
	for _, m := range slices.Backward(b.Spec.Mounts) { // the last mount is on top
		if path.Clean(m.Destination) != "/dev/shm" {
			continue
		}
		n, err := intime.Call(ctx, func() (uint64, error) { return tmpfsBytes(m.Source), nil }, nil)
		if err != nil {
			return 0, fmt.Errorf("read the size of /dev/shm, which is %s on the host: %w", m.Source, err)
		}
		return n, nil
	}
	return 0, nil
}

// tmpfsBytes returns the size of a tmpfs. It returns 0 for all else: not a bind mount,
// or its source is missing, which is reported later.
func tmpfsBytes(path string) uint64 {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		return 0
	}
	return st.Blocks * uint64(st.Bsize)
}
