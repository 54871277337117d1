package service

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/container"
	"github.com/katabox/katabox/agent/guest"
)

// storer mounts storages and finds devices.
type storer interface {
	Mount(ctx context.Context, storages []*api.Storage) error
	Unmount(storages []*api.Storage) error
	Mounted(target string) (bool, error)
	FindDisk(ctx context.Context, driver, source string) (guest.Disk, error)
	FindChar(name string, node bool) (guest.Char, error)
	FindLoop(number string) (guest.Disk, error)
	VolumeStats(target string) (*api.VolumeStatsResponse, error)
	GrowVolume(ctx context.Context, target string, diskBytes uint64) error
}

var _ storer = (*guest.Mounter)(nil)

// The drivers of the devices in api.Device that are the guest's own.
const (
	charDriver = "char"
	loopDriver = "loop"
)

// addDevices adds a container's devices to its spec. It waits for disks that do
// not exist yet, but first checks all devices.
func (p *Pod) addDevices(ctx context.Context, spec *specs.Spec, devices []*api.Device) error {
	wanted := make([]container.Device, 0, len(devices))
	paths := map[string]bool{}
	for _, d := range devices {
		w := container.Device{Path: d.GetPath(), Mode: d.GetMode(), UID: d.GetUid(), GID: d.GetGid(), Access: d.GetAccess(), Mounted: d.GetMounted()}
		if err := container.CheckDevice(w); err != nil {
			return err
		}
		if paths[w.Path] {
			return fmt.Errorf("device %s is given twice: %w", w.Path, errdefs.ErrInvalidArgument)
		}
		paths[w.Path] = true
		wanted = append(wanted, w)
	}
	for i, d := range devices {
		err := p.findDevice(ctx, d, &wanted[i], container.HasGuestNodes(spec))
		if d.GetOptional() && errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("device %s: %w", d.GetPath(), err)
		}
		if err := container.AddDevice(spec, wanted[i]); err != nil {
			return err
		}
	}
	return nil
}

// findDevice completes w with d's properties in the guest. node is as of FindChar.
func (p *Pod) findDevice(ctx context.Context, d *api.Device, w *container.Device, node bool) error {
	if d.GetDriver() == charDriver {
		char, err := p.disks.FindChar(d.GetSource(), node)
		w.Type, w.Common, w.Node, w.Major, w.Minor = "c", char.Common, char.Node, char.Major, char.Minor
		return err
	}
	disk, err := p.findBlock(ctx, d)
	w.Type, w.Node, w.Major, w.Minor = "b", disk.Node, disk.Major, disk.Minor
	return err
}

func (p *Pod) findBlock(ctx context.Context, d *api.Device) (guest.Disk, error) {
	if d.GetDriver() == loopDriver {
		return p.disks.FindLoop(d.GetSource())
	}
	return p.disks.FindDisk(ctx, d.GetDriver(), d.GetSource())
}
