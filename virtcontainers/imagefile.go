package virtcontainers

import (
	"errors"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/memfile"
)

// openImage makes an unnamed file for the content of memory in a directory, which
// is made too. It fails with errdefs.ErrFailedPrecondition if the directory has no
// room for all of it, or is in memory itself.
func openImage(dir string, memory []memfile.Memory) (*os.File, error) {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = checkRoom(dir, memory)
	}
	if err != nil {
		return nil, imageError(err)
	}
	f, err := os.CreateTemp(dir, ".memory-*")
	if err != nil {
		return nil, imageError(err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(imageError(err), f.Close())
	}
	return f, nil
}

func imageError(err error) error {
	return fmt.Errorf("make file for memory (runtime.hibernate_path): %w", err)
}

// checkRoom returns an error for a directory in which an image of that memory
// might not fit: a full disk would harm others too.
func checkRoom(dir string, memory []memfile.Memory) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return os.NewSyscallError("statfs", err)
	}
	if disk.Type == unix.TMPFS_MAGIC || disk.Type == unix.RAMFS_MAGIC {
		return fmt.Errorf("%s is in memory, want a directory on a disk: %w", dir, errdefs.ErrFailedPrecondition)
	}
	var used uint64
	for _, part := range memory {
		n, err := part.Used()
		if err != nil {
			return err
		}
		used += n
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < used {
		return fmt.Errorf("%s has %d MiB free, want %d MiB for the guest's memory: %w", dir, free>>20, used>>20, errdefs.ErrFailedPrecondition)
	}
	return nil
}
