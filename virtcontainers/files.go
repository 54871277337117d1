package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guestfs/disk"
	"github.com/katabox/katabox/virtcontainers/guestfs/rootfs"
	"github.com/katabox/katabox/virtcontainers/guestfs/storage"
	"github.com/katabox/katabox/virtcontainers/guestfs/volume"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// files is what a container has of the host's: what the guest is told of it,
// and what takes it away again.
type files struct {
	paths    guestspec.Paths
	storages []*api.Storage
	devices  []*api.Device
	// sources says of what on the host a storage is, by its place in the guest.
	sources map[string]string
	undos   []func(context.Context) error
}

func newFiles() files {
	return files{sources: map[string]string{}, paths: guestspec.Paths{Binds: map[int]string{}, Writable: map[int]bool{}, Shm: api.GuestShmDir, Devices: map[string]bool{}}}
}

// add has the guest mount a storage that is of source on the host, if that is
// not empty.
func (f *files) add(s *api.Storage, source string) {
	f.storages = append(f.storages, s)
	if source != "" {
		f.sources[s.Target] = source
	}
}

// explain says in an error of the guest's what its names mean on the host.
func (f *files) explain(err error) error {
	for _, s := range f.storages {
		source, known := f.sources[s.Target]
		if known && strings.Contains(err.Error(), "storage "+s.Target+":") {
			return fmt.Errorf("%s: %w", source, err)
		}
	}
	return err
}

// later notes what release is to do.
func (f *files) later(undo func(context.Context) error) { f.undos = append(f.undos, undo) }

// release takes everything away, last things first. It tries all of it.
func (f *files) release(ctx context.Context) error {
	var errs []error
	for _, undo := range slices.Backward(f.undos) {
		errs = append(errs, undo(ctx))
	}
	f.undos = nil
	return errors.Join(errs...)
}

// releaseFiles takes back what the container had of the host's, whether or not
// ctx has ended. The guest must have let go of it.
func (c *Container) releaseFiles(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return c.files.release(ctx)
}

// addRootfs makes the container's root file system reachable: as disks where
// it is one and the configuration has it so, else mounted on the host, for the
// share.
func (s *Sandbox) addRootfs(ctx context.Context, c *Container, opts ContainerOptions) (err error) {
	c.files = newFiles()
	defer func() {
		if err != nil {
			err = errors.Join(err, c.releaseFiles(ctx))
		}
	}()
	plan, err := rootfs.Parse(opts.Rootfs)
	if err != nil {
		return err
	}
	asDisks, err := s.takesDisks(plan)
	if err != nil {
		return err
	}
	if asDisks {
		return s.plugRootfs(ctx, c, plan)
	}
	target := opts.Bundle.RootfsPath()
	mounted, err := storage.MountRootfs(opts.Rootfs, target)
	if mounted {
		c.files.later(func(context.Context) error { return storage.UnmountRootfs(target) })
	}
	if mounted && plan != nil {
		c.files.later(func(context.Context) error { return storage.SettleRootfs(target) })
	}
	return err
}

// takesDisks says whether the guest is to make a root file system of the disks
// in plan, if it is of disks (not nil), or the host to mount it.
func (s *Sandbox) takesDisks(plan *rootfs.Plan) (bool, error) {
	if s.share == nil && plan == nil {
		return false, fmt.Errorf(`shared_fs is "none", and the engine hands over a root file system that is no disk: want a snapshotter of block devices or images (blockfile, devmapper, erofs): %w`, errdefs.ErrFailedPrecondition)
	}
	return plan != nil && s.opts.Config.Hypervisor.RootfsAsDisks(), nil
}

// plugRootfs gives the machine the disks of a root file system.
func (s *Sandbox) plugRootfs(ctx context.Context, c *Container, plan *rootfs.Plan) error {
	places := map[string]*disk.Disk{}
	for _, d := range plan.Disks {
		sources := []disk.Source{{Path: d.Path, ReadOnly: d.ReadOnly}}
		for _, file := range d.Devices {
			sources = append(sources, disk.Source{Path: file, ReadOnly: true})
		}
		for _, src := range sources {
			used, err := s.useDisk(ctx, c, src)
			if err != nil {
				return fmt.Errorf("root file system: %w", err)
			}
			places[src.Path] = used
		}
	}
	storages, root := plan.Storages(s.volumes.newTarget, func(file string, _ bool) (string, string) {
		return places[file].Driver, places[file].Place
	})
	for i, storage := range storages {
		source := "root file system"
		if i < len(plan.Disks) {
			source += " " + plan.Disks[i].Path
		}
		c.files.add(storage, source)
	}
	c.files.paths.Rootfs = root
	return nil
}

// useDisk attaches a disk for as long as the container has its files.
func (s *Sandbox) useDisk(ctx context.Context, c *Container, src disk.Source) (*disk.Disk, error) {
	used, err := s.disks.Use(ctx, src)
	if err != nil {
		return nil, err
	}
	c.files.later(func(ctx context.Context) error { return s.disks.Release(ctx, used) })
	return used, nil
}

// addVolumes brings the container's bind mounts into the guest. What it has
// made when it fails is taken back with the rest of the files.
func (s *Sandbox) addVolumes(ctx context.Context, c *Container, opts ContainerOptions) error {
	volumes, err := volume.Classify(guestspec.HostBinds(opts.Bundle.Spec, s.isVolume), s.volumeOptions())
	if err != nil {
		return err
	}
	if err := s.shareFiles(c, opts, volumes); err != nil {
		return err
	}
	for _, v := range volumes {
		if v.Kind == volume.Shared {
			continue
		}
		source, err := s.addVolume(ctx, c, v)
		if err != nil {
			return fmt.Errorf("volume %s, mounted at %s: %w", v.Source, opts.Bundle.Spec.Mounts[v.Index].Destination, err)
		}
		c.files.paths.Binds[v.Index] = source
	}
	return s.reserveHugepages(c, opts)
}

// shareFiles puts the root file system, unless it is of disks, and the volumes
// that are shared into the share.
func (s *Sandbox) shareFiles(c *Container, opts ContainerOptions, volumes []volume.Volume) error {
	if s.share == nil {
		return nil
	}
	var root string
	if c.files.paths.Rootfs == "" {
		root = opts.Bundle.RootfsPath()
	}
	var binds []guestspec.Bind
	for _, v := range volumes {
		if v.Kind == volume.Shared {
			binds = append(binds, v.Bind)
		}
	}
	if root == "" && len(binds) == 0 {
		return nil
	}
	shared, err := s.share.AddContainer(c.ID, root, binds)
	if err != nil {
		return err
	}
	c.files.later(func(context.Context) error { return s.unshare(c.ID) })
	if root != "" {
		c.files.paths.Rootfs = shared.Rootfs
	}
	c.files.paths.Binds, c.files.paths.Writable = shared.Binds, shared.Writable
	return nil
}
