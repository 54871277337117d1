package guestfs

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guestspec"
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
	byIndex := func(a, b guestspec.Placed) int { return cmp.Compare(a.Index, b.Index) }
	for _, b := range slices.SortedFunc(slices.Values(c.paths.Binds), byIndex) { // of two at one destination the last counts
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

// nameAsSaved gives the binds of a container that continues from a saved one that
// one's names in the share, where the guest has files of them open. They go by their
// destinations: an engine may list its mounts in another order (Podman's restore
// --import does). Saved comes from a file that anyone may have written.
func (c *Container) nameAsSaved(binds []guestspec.Bind) error {
	named, taken := map[string]bool{}, map[string]string{}
	for i, b := range slices.Backward(binds) {
		destination := c.Bundle.Spec.Mounts[b.Index].Destination
		at := c.Saved[destination]
		if at == "" {
			return noSaved(destination)
		}
		source := b.Source
		if named[destination] { // SavedMounts has the last one of each
			at, source = hiddenPlace(binds, i), ""
		}
		name, ofPod := path.Base(at), path.Dir(at) == api.GuestPodVolumesDir
		place := path.Join(strconv.FormatBool(ofPod), name)
		other, again := taken[place]
		free := !again || ofPod && sameDirectory(source, other)
		if n, err := strconv.Atoi(name); err != nil || n < 0 || strconv.Itoa(n) != name || !free {
			return fmt.Errorf("the saved container's mount at %s is at %s, want a place of its own in the share: %w", destination, at, errdefs.ErrInvalidArgument)
		}
		named[destination], taken[place], binds[i].Name, binds[i].OfPod = true, source, name, ofPod
	}
	return nil
}

// hiddenPlace is where the guest has a bind that a later one at its destination hides: a
// new container's are numbered in their order.
func hiddenPlace(binds []guestspec.Bind, i int) string {
	if i+1 < len(binds) && binds[i+1].OfPod {
		if next, err := strconv.Atoi(binds[i+1].Name); err == nil && next > 1 {
			return path.Join(api.GuestPodVolumesDir, strconv.Itoa(next-1))
		}
	}
	return strconv.Itoa(binds[i].Index)
}

// sameDirectory reports whether two paths of the host lead to one directory.
func sameDirectory(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// noSaved is the error of a mount that the saved container has not.
func noSaved(destination string) error {
	return fmt.Errorf("it has a mount at %s, the saved container has none: %w", destination, errdefs.ErrFailedPrecondition)
}

// CheckSaved returns an error that names the first of the saved container's mounts that
// this one has not, or has elsewhere, and the other way round. The Steps must have
// been done.
func (c *Container) CheckSaved() error {
	have, err := c.SavedMounts()
	if err != nil {
		return err
	}
	both := maps.Clone(have)
	maps.Copy(both, c.Saved)
	for _, destination := range slices.Sorted(maps.Keys(both)) {
		switch has, want := have[destination], c.Saved[destination]; {
		case has == "":
			return c.lacksSaved(destination)
		case want == "":
			return noSaved(destination)
		case has != want:
			return fmt.Errorf("its mount at %s is at %s in the guest, the saved container's at %s: %w",
				destination, has, want, errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}

// lacksSaved is the error of a mount that only the saved container has from the host.
func (c *Container) lacksSaved(destination string) error {
	for i, at := range c.paths.Linked {
		if c.Bundle.Spec.Mounts[i].Destination == destination {
			return fmt.Errorf("its mount at %s is the guest's %s, the saved container has the host's file there, as earlier versions did: %w",
				destination, at, errdefs.ErrFailedPrecondition)
		}
	}
	return fmt.Errorf("the saved container has a mount at %s, this one has none: %w", destination, errdefs.ErrFailedPrecondition)
}

// checkUp returns an error before the pod has its guest: a container that continues
// from a saved one has its files from then on, and only from the share.
func (p *Pod) checkUp() error {
	if p.guest == nil {
		return fmt.Errorf("a container that continues from a saved one has only files of the share: %w", errdefs.ErrFailedPrecondition)
	}
	return nil
}
