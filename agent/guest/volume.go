package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/pci"
)

// VolumeStats returns the size and use of the file system on a disk that is mounted
// on the target of a storage. It fails with errdefs.ErrNotFound for another target.
func (m *Mounter) VolumeStats(target string) (*api.VolumeStatsResponse, error) {
	root, st, err := m.openVolume(target)
	if err != nil {
		return nil, fmt.Errorf("inspect volume %.200q: %w", target, err)
	}
	defer root.Close()
	block := uint64(st.Frsize)
	return &api.VolumeStatsResponse{
		TotalBytes: st.Blocks * block, AvailableBytes: st.Bavail * block, UsedBytes: (st.Blocks - st.Bfree) * block,
		TotalInodes: st.Files, AvailableInodes: st.Ffree, UsedInodes: st.Files - st.Ffree,
		ReadOnly: st.Flags&unix.ST_RDONLY != 0,
	}, nil
}

// GrowVolume makes the file system that is mounted on the target of a storage on
// a disk as large as the disk, while it is in use. It blocks until the kernel
// knows that the disk has diskBytes, pci.Timeout at most, and as long as the
// kernel takes. It fails with errdefs.ErrNotFound when nothing is mounted there,
// errdefs.ErrFailedPrecondition when that is read-only, and
// errdefs.ErrNotImplemented for a file system that cannot grow while mounted.
func (m *Mounter) GrowVolume(ctx context.Context, target string, diskBytes uint64) error {
	if err := m.growVolume(ctx, target, diskBytes); err != nil {
		return fmt.Errorf("grow volume %.200q: %w", target, err)
	}
	return nil
}

func (m *Mounter) growVolume(ctx context.Context, target string, diskBytes uint64) error {
	root, st, err := m.openVolume(target)
	if err != nil {
		return err
	}
	defer root.Close()
	if st.Flags&unix.ST_RDONLY != 0 {
		return fmt.Errorf("it is mounted read-only: %w", errdefs.ErrFailedPrecondition)
	}
	disk, err := m.volumeDisk(target)
	if err != nil {
		return err
	}
	now, err := m.awaitBytes(ctx, disk, diskBytes)
	if err != nil {
		return err
	}
	return m.kernel.grow(int(root.Fd()), st.Type, uint64(st.Bsize), now)
}

// openVolume opens the root of what is mounted on the target of a storage on a
// disk.
func (m *Mounter) openVolume(target string) (*os.File, *unix.Statfs_t, error) {
	if _, err := m.volumeDisk(target); err != nil {
		return nil, nil, err
	}
	mounted, err := m.Mounted(target)
	if err == nil && !mounted {
		err = notMounted()
	}
	if err != nil {
		return nil, nil, err
	}
	root, err := os.OpenFile(target, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, nil, err
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &st); err != nil {
		return nil, nil, errors.Join(os.NewSyscallError("fstatfs", err), root.Close())
	}
	return root, &st, nil
}

func notMounted() error {
	return fmt.Errorf("no disk is mounted there: %w", errdefs.ErrNotFound)
}

// volumeDisk is the first disk of a mounted storage.
func (m *Mounter) volumeDisk(target string) (Disk, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	used, ok := m.disks[target]
	if !ok || used.released || len(used.disks) == 0 {
		return Disk{}, notMounted()
	}
	return used.disks[0], nil
}

// sectorBytes is the unit of a disk's size in sysfs, whatever its sectors
// (Documentation/ABI/stable/sysfs-block, size).
const sectorBytes = 512

// awaitBytes waits until a disk has that many bytes, and returns how many it
// has.
func (m *Mounter) awaitBytes(ctx context.Context, disk Disk, want uint64) (uint64, error) {
	ctx, cancel := pci.WithTimeout(ctx)
	defer cancel()
	file := filepath.Join(m.sys, "dev", "block", fmt.Sprintf("%d:%d", disk.Major, disk.Minor), "size")
	return pci.Await(ctx, func() (uint64, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, fmt.Errorf("read size of %s: %w", disk.Node, err)
		}
		sectors, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 54)
		if err != nil {
			return 0, fmt.Errorf("read size of %s: %w", disk.Node, err)
		}
		if sectors*sectorBytes < want {
			return 0, fmt.Errorf("disk %s has %d bytes, want %d: %w", disk.Node, sectors*sectorBytes, want, errdefs.ErrNotFound)
		}
		return sectors * sectorBytes, nil
	})
}
