package guestfs

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/containerd/log"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guestfs/storage"
	"github.com/katabox/katabox/virtcontainers/guestspec"
	"github.com/katabox/katabox/virtcontainers/standin"
)

// View returns the container's root file system as the host sees it, with the
// mounts that come from the host; it is empty if the root file system consists
// of disks, which the guest mounts. Call closeView once the view is in use.
func (c *Container) View(ctx context.Context) (view standin.View, closeView func()) {
	var trees []*os.File
	closeView = func() {
		for _, tree := range trees {
			tree.Close()
		}
	}
	clone := func(b guestspec.Bind) *os.File {
		tree, err := storage.Clone(ctx, b)
		if err != nil {
			log.G(ctx).WithField("container", c.ID).WithError(err).Debug("not visible through the container's process on the host")
			return nil
		}
		trees = append(trees, tree)
		return tree
	}
	if !isShared(c.paths.Rootfs) {
		return view, closeView
	}
	spec := c.Bundle.Spec
	view.Root = clone(guestspec.Bind{Source: c.Bundle.RootfsPath(), Recursive: true})
	view.ReadOnly = spec.Root != nil && spec.Root.Readonly
	for i, m := range spec.Mounts {
		mount := standin.Mount{Target: m.Destination}
		at := slices.IndexFunc(c.paths.Binds, func(b guestspec.Placed) bool { return b.Index == i && isShared(b.At) })
		if at >= 0 {
			b := c.paths.Binds[at].Bind
			mount.Tree, mount.ReadOnly = clone(b), b.ReadOnly
		}
		view.Mounts = append(view.Mounts, mount)
	}
	return view, closeView
}

// isShared reports whether a path in the guest is in the share.
func isShared(path string) bool { return strings.HasPrefix(path, api.GuestSharedDir+"/") }
