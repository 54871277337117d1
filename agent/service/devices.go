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

// storer mounts storages and finds disks.
type storer interface {
	Mount(ctx context.Context, storages []*api.Storage) error
	Unmount(storages []*api.Storage) error
	Mounted(target string) (bool, error)
	FindDisk(ctx context.Context, driver, source string) (guest.Disk, error)
}

var _ storer = (*guest.Mounter)(nil)

// addDevices puts a container's disks into its spec. It waits for those that
// are not there yet, and for none when one of them is wrong in itself.
func (p *Pod) addDevices(ctx context.Context, spec *specs.Spec, devices []*api.BlockDevice) error {
	wanted := make([]container.BlockDevice, 0, len(devices))
	paths := map[string]bool{}
	for _, d := range devices {
		w := container.BlockDevice{Path: d.GetPath(), Mode: d.GetMode(), UID: d.GetUid(), GID: d.GetGid(), Access: d.GetAccess()}
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
		disk, err := p.disks.FindDisk(ctx, d.GetDriver(), d.GetSource())
		if err != nil {
			return fmt.Errorf("device %s: %w", d.GetPath(), err)
		}
		wanted[i].Node, wanted[i].Major, wanted[i].Minor = disk.Node, disk.Major, disk.Minor
		if err := container.AddDevice(spec, wanted[i]); err != nil {
			return err
		}
	}
	return nil
}
