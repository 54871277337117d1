package guestfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/guestfs/disk"
	"github.com/katabox/katabox/virtcontainers/guestfs/rootfs"
	"github.com/katabox/katabox/virtcontainers/guestfs/storage"
	"github.com/katabox/katabox/virtcontainers/guestfs/volume"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// Request is a container as the engine describes it.
type Request struct {
	ID     string
	Bundle *bundle.Bundle
	// Rootfs is mounted at the bundle's rootfs; empty when the engine has
	// mounted it.
	Rootfs []*types.Mount
	// CopyRootfs has the root file system, a directory, copied into the guest.
	CopyRootfs bool
	// ShareID names the container's directory in the share; empty is ID. A
	// restored container uses the saved container's.
	ShareID string
	// Saved are the SavedMounts of the saved container; nil for a container that is not
	// restored.
	Saved map[string]string
}

// Container holds the host's files that a container uses: their description for
// the guest, and how they are released. Its methods except BringBack are
// called by one goroutine at a time.
type Container struct {
	Request
	pod *Pod

	paths    guestspec.Paths
	storages []*api.Storage
	devices  []*api.Device
	// sources maps a storage's mount point in the guest to its source on the
	// host.
	sources map[string]string
	// hugeVolumes are the host's directories of volumes of huge pages without a size.
	hugeVolumes []string
	// groups are those that the guest gives volumes' files to when it creates the
	// container, by the volumes' keys.
	groups  map[string]groupGiven
	undos   []func(context.Context) error
	results results
}

// Container returns the files of a container that is to be created. Nothing
// happens until its Steps are done.
func (p *Pod) Container(req Request) *Container {
	req.ShareID = cmp.Or(req.ShareID, req.ID)
	return &Container{
		Request: req, pod: p, sources: map[string]string{}, groups: map[string]groupGiven{},
		paths: guestspec.Paths{Shm: api.GuestShmDir, Devices: map[string]bool{}},
	}
}

// Step is one part of bringing the files into the guest.
type Step struct {
	Name string
	Do   func(context.Context) error
}

// Steps bring the container's files into the guest, except those that the guest
// mounts when it creates the container. They are done in order. When one fails,
// it and those before it are undone; when all are done, Release undoes them.
func (c *Container) Steps() []Step {
	steps := []Step{{"rootfs", c.addRootfs}, {"volumes", c.addVolumes}, {"devices", c.addDevices}}
	for i, s := range steps {
		steps[i].Do = func(ctx context.Context) error {
			if err := s.Do(ctx); err != nil {
				return errors.Join(err, c.Release(ctx))
			}
			return nil
		}
	}
	return steps
}

// Spec describes a container to the guest.
type Spec struct {
	*guestspec.Guest
	// Storages are mounted before the container is created, in order, Devices
	// are made in it.
	Storages []*api.Storage
	Devices  []*api.Device
}

// CheckSpec returns the error with which Spec would refuse a container because
// of its spec, so that it can be refused before anything is made. first means
// that it is the sandbox's own container.
func CheckSpec(spec *specs.Spec, cfg *config.Config, first bool) error {
	return guestspec.Check(spec, rules(cfg, first))
}

func rules(cfg *config.Config, first bool) guestspec.Rules {
	return guestspec.Rules{
		NoSeccomp: cfg.Runtime.DisableGuestSeccomp, HostNamespaces: cfg.Runtime.AllowHostNamespaces, First: first,
	}
}

// Spec makes the guest's spec. The Steps must have been done.
func (c *Container) Spec() (*Spec, error) {
	filtered, err := guestspec.Filter(c.Bundle.Spec, c.paths, rules(c.pod.opts.Config, c.ID == c.pod.opts.ID))
	if err != nil {
		return nil, err
	}
	return &Spec{Guest: filtered, Storages: c.storages, Devices: c.devices}, nil
}

// releaseWait bounds each step of a Release.
const releaseWait = 10 * time.Second

// Created records that the guest has made the container.
func (c *Container) Created() {
	c.noteGroups()
	if c.pod.share != nil {
		c.pod.share.Created(c.ShareID)
	}
}

// AwaitIdle waits, not for long, until the host has answered what the guest asked
// about the container's files, whose processes have ended. It reports whether it has.
func (c *Container) AwaitIdle(ctx context.Context) bool {
	return c.pod.share == nil || c.pod.share.AwaitIdle(ctx, c.ShareID)
}

// Release undoes everything, the last step first, whether or not ctx has ended,
// and goes on after an error. The guest must no longer use the files. A second
// call does nothing.
func (c *Container) Release(ctx context.Context) error {
	var errs []error
	for _, undo := range slices.Backward(c.undos) {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWait)
		errs = append(errs, undo(bounded))
		cancel()
	}
	c.undos = nil
	return errors.Join(errs...)
}

// later registers an undo for Release.
func (c *Container) later(undo func(context.Context) error) { c.undos = append(c.undos, undo) }

// add has the guest mount a storage that comes from source on the host.
func (c *Container) add(s *api.Storage, source string) {
	c.storages = append(c.storages, s)
	c.sources[s.Target] = source
}

// Explain adds the source on the host to a guest's error about a storage or a mount,
// which has only the path in the guest.
func (c *Container) Explain(err error) error {
	source, known := c.failedSource(err)
	if !known {
		return err
	}
	return fmt.Errorf("%s: %w", source, err)
}

func (c *Container) failedSource(err error) (source string, known bool) {
	var failed *guest.StorageError
	if errors.As(err, &failed) {
		source, known = c.sources[failed.Target]
		return source, known
	}
	for _, b := range c.paths.Binds {
		if b.At != "" && strings.Contains(err.Error(), strconv.Quote(b.At)) { // as libcontainer writes it
			return "volume " + b.Source, true
		}
	}
	return "", false
}

// addRootfs makes the container's root file system reachable: as disks if it
// consists of disks and the configuration allows it, otherwise mounted on the
// host, for the share.
func (c *Container) addRootfs(ctx context.Context) (err error) {
	if c.CopyRootfs {
		c.paths.Rootfs, err = c.copyVolume(ctx, volume.Volume{Bind: guestspec.Bind{Source: c.Bundle.RootfsPath()}})
		return err
	}
	plan, err := rootfs.Parse(c.Rootfs)
	if err != nil {
		return err
	}
	asDisks, err := c.pod.takesDisks(plan)
	if err != nil {
		return err
	}
	if asDisks {
		return c.plugRootfs(ctx, plan)
	}
	target := c.Bundle.RootfsPath()
	mounted, err := storage.MountRootfs(ctx, c.Rootfs, target)
	if mounted {
		c.later(func(context.Context) error { return storage.UnmountRootfs(target) })
	}
	if mounted && plan != nil {
		c.later(func(context.Context) error { return storage.SettleRootfs(target) })
	}
	return err
}

// takesDisks reports whether the guest mounts the root file system from the
// disks in plan (nil if it is not made of disks); otherwise the host mounts it.
func (p *Pod) takesDisks(plan *rootfs.Plan) (bool, error) {
	if p.share == nil && plan == nil {
		return false, fmt.Errorf(`shared_fs is "none", and the engine hands over a root file system that is not a disk: want a snapshotter of block devices or images (blockfile, devmapper, erofs): %w`, errdefs.ErrFailedPrecondition)
	}
	return plan != nil && p.opts.Config.Hypervisor.RootfsAsDisks(), nil
}

// plugRootfs gives the machine the disks of a root file system.
func (c *Container) plugRootfs(ctx context.Context, plan *rootfs.Plan) error {
	places := map[string]*disk.Disk{}
	for _, d := range plan.Disks {
		sources := []disk.Source{{Path: d.Path, ReadOnly: d.ReadOnly}}
		for _, file := range d.Devices {
			sources = append(sources, disk.Source{Path: file, ReadOnly: true})
		}
		for _, src := range sources {
			used, err := c.useDisk(ctx, src)
			if err != nil {
				return fmt.Errorf("root file system: %w", err)
			}
			places[src.Path] = used
		}
	}
	storages, root := plan.Storages(c.pod.volumes.newTarget, func(file string, _ bool) (string, string) {
		return places[file].Driver, places[file].Place
	})
	for i, storage := range storages {
		source := "root file system"
		if i < len(plan.Disks) {
			source += " " + plan.Disks[i].Path
		}
		c.add(storage, source)
	}
	c.paths.Rootfs = root
	return nil
}

// useDisk attaches a disk until Release.
func (c *Container) useDisk(ctx context.Context, src disk.Source) (*disk.Disk, error) {
	if err := c.pod.checkUp(); err != nil {
		return nil, fmt.Errorf("disk %s: %w", src.Path, err)
	}
	used, err := c.pod.disks.Use(ctx, src)
	if err != nil {
		return nil, err
	}
	c.later(func(ctx context.Context) error { return c.pod.disks.Release(ctx, used) })
	return used, nil
}
