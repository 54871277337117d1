package guestfs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
)

// SavedMounts returns where the guest finds the container's root file system ("/")
// and its mounts from the host, by their destinations. A container that continues
// from the saved one must have the same. It fails with
// errdefs.ErrFailedPrecondition, and names it, if the container has anything of
// the host's that is not in the share: that could not be given to another guest.
func (c *Container) SavedMounts() (map[string]string, error) {
	shared := func(at string) bool { return strings.HasPrefix(at, api.GuestSharedDir+"/") }
	if !shared(c.paths.Rootfs) {
		return nil, fmt.Errorf("its root file system is on a disk: %w", errdefs.ErrFailedPrecondition)
	}
	all := map[string]string{"/": c.paths.Rootfs}
	for _, b := range c.paths.Binds {
		destination := c.Bundle.Spec.Mounts[b.Index].Destination
		if !shared(b.At) {
			return nil, fmt.Errorf("its mount at %s (%s) is not in the share of files: %w", destination, b.Source, errdefs.ErrFailedPrecondition)
		}
		all[destination] = b.At
	}
	switch {
	case len(c.devices) > 0 || c.pod.HasDisks():
		return nil, fmt.Errorf("it has devices or disks of the host: %w", errdefs.ErrFailedPrecondition)
	case len(c.storages) > 0:
		return nil, fmt.Errorf("the guest has mounted %s for it: %w", c.storages[0].Target, errdefs.ErrFailedPrecondition)
	}
	return all, nil
}

// CheckSaved returns an error that names the first mount of a saved container that
// this one has not, or has elsewhere, and the other way round. The Steps must have
// been done.
func (c *Container) CheckSaved(want map[string]string) error {
	have, err := c.SavedMounts()
	if err != nil {
		return err
	}
	both := maps.Clone(have)
	maps.Copy(both, want)
	for _, destination := range slices.Sorted(maps.Keys(both)) {
		switch {
		case have[destination] == "":
			return fmt.Errorf("the saved container has a mount at %s, this one has none: %w", destination, errdefs.ErrFailedPrecondition)
		case want[destination] == "":
			return fmt.Errorf("it has a mount at %s, the saved container has none: %w", destination, errdefs.ErrFailedPrecondition)
		case have[destination] != want[destination]:
			return fmt.Errorf("its mount at %s has another place in the list of mounts (%s) than the saved container's (%s): %w",
				destination, have[destination], want[destination], errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}

// checkUp returns an error before the pod has its guest: a container that continues
// from a saved one has its files from then on, and only from the share.
func (p *Pod) checkUp() error {
	if p.guest == nil {
		return fmt.Errorf("a container that continues from a saved one has only files of the share: %w", errdefs.ErrFailedPrecondition)
	}
	return nil
}
