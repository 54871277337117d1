package guestfs

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/guestfs/disk"
	"github.com/katabox/katabox/virtcontainers/guestfs/volume"
)

// assigned is one container's mount of a volume that was assigned a disk.
type assigned struct {
	volume volume.Volume
	disk   *disk.Disk
	// target is where the guest has mounted it, or is to mount it.
	target string
}

// assignedVolumes are those of a pod's containers.
type assignedVolumes struct {
	mu   sync.Mutex // guards list
	list []*assigned
}

// note adds a mount until forget is called.
func (a *assignedVolumes) note(m *assigned) (forget func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, m)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.list = slices.DeleteFunc(a.list, func(other *assigned) bool { return other == m })
	}
}

// find returns the mounts of the volume at a path, which may be its device's as
// well.
func (a *assignedVolumes) find(path string) ([]*assigned, error) {
	path = filepath.Clean(path)
	a.mu.Lock()
	defer a.mu.Unlock()
	var found []*assigned
	for _, m := range a.list {
		if slices.Contains([]string{m.volume.Assigned, m.volume.Key, filepath.Clean(m.volume.Disk.Path)}, path) {
			found = append(found, m)
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no container of the pod has the direct volume %q: %w", path, errdefs.ErrNotFound)
	}
	return found, nil
}

// AssignedVolume is how large a volume with an assigned disk is.
type AssignedVolume struct {
	guest.VolumeStats
	// Failed is set when the file system was mounted for writing and cannot be
	// written any more: the guest's kernel met an error.
	Failed bool
}

// CheckVolume returns an errdefs.ErrNotFound unless a container has the volume with
// an assigned disk at path, which may be the device's as well. It does not ask the
// guest.
func (p *Pod) CheckVolume(path string) error {
	_, err := p.assigned.find(path)
	return err
}

// VolumeStats asks the guest for the volume with an assigned disk at path, which
// may be the device's as well. It is an errdefs.ErrNotFound when no container
// has it, or none yet.
func (p *Pod) VolumeStats(ctx context.Context, path string) (AssignedVolume, error) {
	m, stats, err := p.mountedVolume(ctx, path)
	if err != nil {
		return AssignedVolume{}, err
	}
	return AssignedVolume{VolumeStats: stats, Failed: stats.ReadOnly && !m.volume.Disk.ReadOnly}, nil
}

// mountedVolume finds a mount of a volume that the guest knows, one for writing
// if there is one.
func (p *Pod) mountedVolume(ctx context.Context, path string) (*assigned, guest.VolumeStats, error) {
	mounts, err := p.assigned.find(path)
	if err != nil {
		return nil, guest.VolumeStats{}, err
	}
	slices.SortStableFunc(mounts, func(a, b *assigned) int { return order(a) - order(b) })
	var firstErr error
	for _, m := range mounts {
		stats, err := p.guest.VolumeStats(ctx, m.target)
		if err == nil {
			return m, stats, nil
		}
		if firstErr == nil {
			firstErr = fmt.Errorf("volume %s: %w", m.volume.Assigned, err)
		}
	}
	return nil, guest.VolumeStats{}, firstErr
}

func order(m *assigned) int {
	if m.volume.Disk.ReadOnly {
		return 1
	}
	return 0
}

// growing are the file systems that grow while they are mounted.
var growing = []string{"ext2", "ext3", "ext4", "xfs"}

// GrowVolume makes the volume with an assigned disk at path larger, and returns
// how many bytes its disk has then: disk.Pool.Grow has what size means. The
// file system becomes as large as the disk; containers use it meanwhile. It
// fails with errdefs.ErrNotFound when no container has the volume, and with
// errdefs.ErrNotImplemented for a file system that does not grow while it is
// mounted. After another error the disk may have grown, and the call may be made
// again.
func (p *Pod) GrowVolume(ctx context.Context, path string, size uint64) (uint64, error) {
	m, stats, err := p.mountedVolume(ctx, path)
	if err != nil {
		return 0, err
	}
	name, d := m.volume.Assigned, m.volume.Disk
	switch {
	case !slices.Contains(growing, d.Fstype):
		return 0, fmt.Errorf("grow volume %s: its file system is %s, want ext4 or xfs: %w", name, d.Fstype, errdefs.ErrNotImplemented)
	case d.ReadOnly || stats.ReadOnly:
		return 0, fmt.Errorf("grow volume %s: it is read-only: %w", name, errdefs.ErrFailedPrecondition)
	}
	bytes, err := p.disks.Grow(ctx, m.disk, size)
	if err == nil {
		err = p.guest.GrowVolume(ctx, m.target, bytes)
	}
	if err != nil {
		return 0, fmt.Errorf("grow volume %s: %w", name, err)
	}
	return bytes, nil
}
