package virtcontainers

import (
	"context"
	"fmt"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/guestfs/disk"
)

// addDevices gives the machine the block devices that the container is to
// have, and names the character devices that the guest is to give it. The guest
// says which of these it does not have.
func (s *Sandbox) addDevices(ctx context.Context, c *Container, opts ContainerOptions) error {
	chars, err := bundle.CharDevices(opts.Bundle.Spec) // nothing is to be undone when it fails
	if err != nil {
		return err
	}
	if err := s.addDisks(ctx, c, opts); err != nil {
		return err
	}
	for _, d := range chars {
		c.files.paths.Devices[d.Path] = true
		c.files.devices = append(c.files.devices, &api.Device{
			Path: d.Path, Driver: "char", Source: d.Name, Mode: d.Mode, Uid: d.UID, Gid: d.GID, Access: d.Access, Optional: d.Optional,
		})
	}
	return nil
}

// addDisks attaches the block devices.
func (s *Sandbox) addDisks(ctx context.Context, c *Container, opts ContainerOptions) error {
	devices, err := bundle.BlockDevices(opts.Bundle.Spec)
	if err != nil {
		return err
	}
	for _, d := range devices {
		used, err := s.useDisk(ctx, c, disk.Source{Path: d.HostPath, ReadOnly: d.ReadOnly()})
		if err != nil {
			return fmt.Errorf("device %s: %w", d.Path, err)
		}
		c.files.paths.Devices[d.Path] = true
		c.files.devices = append(c.files.devices, &api.Device{
			Path: d.Path, Driver: used.Driver, Source: used.Place, Mode: d.Mode, Uid: d.UID, Gid: d.GID, Access: d.Access,
		})
	}
	return nil
}
