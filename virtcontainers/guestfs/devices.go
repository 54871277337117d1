package guestfs

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/intime"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/guestfs/disk"
	"github.com/katabox/katabox/virtcontainers/guestfs/volume"
)

// addDevices gives the machine the container's block devices, and lists the
// character devices that the guest is to make. The guest reports which of these
// it lacks.
func (c *Container) addDevices(ctx context.Context) error {
	chars, err := bundle.CharDevices(c.Bundle.Spec) // a failure here has nothing to undo
	if err != nil {
		return err
	}
	loops, err := bundle.Loops(c.Bundle.Spec)
	if err != nil {
		return err
	}
	if err := c.addDisks(ctx); err != nil {
		return err
	}
	for _, d := range chars {
		c.addDevice(d.Node, "char", d.Name).Optional = d.Optional
	}
	c.addLoops(loops)
	return nil
}

// addLoops gives the container loop devices of the guest, but for those at whose path
// it has a disk.
func (c *Container) addLoops(loops []bundle.Loop) {
	for _, l := range loops {
		if c.paths.Devices[l.Path] {
			continue
		}
		c.addDevice(l.Node, "loop", strconv.FormatInt(l.Number, 10)).Optional = l.Optional
	}
}

// addDisks attaches the block devices. It leaves out those disks of a privileged
// container that cannot be given away.
func (c *Container) addDisks(ctx context.Context) error {
	devices, err := bundle.BlockDevices(c.Bundle.Spec, c.pod.opts.Config.Runtime.PrivilegedHostDisks)
	if err != nil {
		return err
	}
	for _, d := range devices {
		if c.paths.Devices[d.Path] {
			continue // a disk is mounted there
		}
		used, err := c.useRaw(ctx, d)
		if d.Optional && unusable(err) {
			log.G(ctx).WithField("container", c.ID).WithError(err).Warn("a disk of privileged_host_disks is not given to the container")
			continue
		}
		if err != nil {
			return fmt.Errorf("device %s: %w", d.Path, err)
		}
		c.addDevice(d.Node, used.Driver, used.Place)
	}
	return nil
}

// addMountedDisk attaches a block device that is the source of a bind mount, and has the
// guest's node of it mounted at the mount's destination.
func (c *Container) addMountedDisk(ctx context.Context, v volume.Volume) error {
	describe := func() (bundle.BlockDevice, error) { return bundle.MountedDevice(c.Bundle.Spec, v.Index, v.Disk.Path) }
	d, err := intime.Call(ctx, describe, nil)
	if err != nil {
		return err
	}
	used, err := c.useRaw(ctx, d)
	if err != nil {
		return err
	}
	c.addDevice(d.Node, used.Driver, used.Place).Mounted = true
	return nil
}

// useRaw attaches a block device of which the container gets the node, until Release; it
// grows with the device (Watch). Unless the configuration says otherwise it bypasses the
// host's page cache: a container's O_DIRECT ends at the guest's device, and programs that
// share a disk with another host rely on it to see what that one has written.
func (c *Container) useRaw(ctx context.Context, d bundle.BlockDevice) (*disk.Disk, error) {
	direct := !c.pod.opts.Config.Hypervisor.BlockCache.Set
	used, err := c.useDisk(ctx, disk.Source{Path: d.HostPath, ReadOnly: d.ReadOnly(), Direct: direct})
	if err != nil {
		return nil, err
	}
	forget := c.pod.raw.note(used)
	c.later(func(context.Context) error {
		forget()
		return nil
	})
	return used, nil
}

// addDevice has the guest make the node of one of its devices in the container.
func (c *Container) addDevice(n bundle.Node, driver, source string) *api.Device {
	device := &api.Device{Path: n.Path, Driver: driver, Source: source, Mode: n.Mode, Uid: n.UID, Gid: n.GID, Access: n.Access}
	c.paths.Devices[n.Path] = true
	c.devices = append(c.devices, device)
	return device
}

// unusable reports whether the machine cannot have the disk now: the host or
// another pod uses it, it is empty, write-protected or gone, its drive has no
// medium, or the machine has no slot left.
func unusable(err error) bool {
	for _, errno := range []error{unix.ENOMEDIUM, unix.ENXIO, unix.ENODEV, unix.ENOENT, unix.EROFS, unix.EACCES} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return errdefs.IsFailedPrecondition(err) || errdefs.IsInvalidArgument(err) || errdefs.IsNotFound(err) || errdefs.IsResourceExhausted(err)
}
