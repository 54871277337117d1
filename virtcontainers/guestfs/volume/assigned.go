package volume

import (
	"fmt"
	"path/filepath"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guestfs/volume/direct"
)

// assigned makes v a Direct volume if its source, or the volume that the source
// is a part of, was assigned a disk.
func (c *classifier) assigned(v *Volume, src source) (bool, error) {
	info, root, spelling, err := c.lookup(v.Source, src)
	if info == nil || err != nil {
		return false, err
	}
	if v.IDMap != nil {
		return false, fmt.Errorf("a direct-assigned volume of a pod with user namespaces cannot have its owners mapped: %w", errdefs.ErrNotImplemented)
	}
	v.Kind, v.Key, v.Assigned = Direct, root, spelling
	v.Disk = Disk{Path: info.Device, ReadOnly: info.ReadOnly, Fstype: info.Fstype, Options: info.Options}
	if g := info.Group; g != nil {
		v.Disk.Group = &api.FSGroup{Gid: g.GID, OnRootMismatch: g.OnRootMismatch}
	}
	return true, c.setSub(v, src, root)
}

// lookup returns the Info that was assigned and the path to which it was
// assigned: without symbolic links, and as the driver spelled it. Without one the
// Info is nil.
func (c *classifier) lookup(sourcePath string, src source) (info *direct.Info, root, spelling string, err error) {
	for _, root := range c.roots(src) {
		for _, spelling := range c.spellings(root, sourcePath, src) {
			info, err := c.direct.Lookup(spelling)
			if errdefs.IsNotFound(err) {
				continue
			}
			return info, root, spelling, err
		}
	}
	return nil, "", "", nil
}

// roots returns the paths that a driver may have named: the source itself, and
// the kubelet's directories for the volume (for CSI with "/mount", Kubernetes,
// pkg/volume/csi/csi_mounter.go, GetPath).
func (c *classifier) roots(src source) []string {
	roots := []string{src.path}
	switch {
	case !src.located:
	case src.loc.subPath():
		// Volumes of the kubelet's built-in plugins are in other plugins'
		// directories; no disk can be assigned to them.
		csi := location{pod: src.loc.pod, plugin: csiPlugin, volume: src.loc.volume}.dir()
		roots = append(roots, csi+"/mount", csi)
	default:
		for _, root := range []string{src.loc.dir() + "/mount", src.loc.dir()} {
			if rest, ok := within(root, src.path); ok && rest != "" {
				roots = append(roots, root)
			}
		}
	}
	return roots
}

// spellings returns the forms of a path: drivers get it with the symbolic links
// of the kubelet's directory, engines resolve them.
func (c *classifier) spellings(root, sourcePath string, src source) []string {
	names := []string{root}
	if clean := filepath.Clean(sourcePath); root == src.path && clean != root {
		names = append(names, clean)
	}
	if rest, ok := within(c.kubelet, root); ok && c.kubelet != "" && c.kubelet != filepath.Clean(c.opts.KubeletDir) {
		names = append(names, filepath.Join(c.opts.KubeletDir, rest))
	}
	return names
}
