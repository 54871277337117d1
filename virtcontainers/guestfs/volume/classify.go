package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/guestfs/filesync"
	"github.com/katabox/katabox/virtcontainers/guestfs/volume/direct"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// classifier holds what classifying the binds of one container needs.
type classifier struct {
	opts Options
	// kubelet is the kubelet's directory without symbolic links: an engine
	// follows those of a mount's source (containerd, internal/cri/server,
	// runtimeSpec). Empty if there is no kubelet.
	kubelet string
	direct  direct.Dir
	mounts  mountTable
}

func newClassifier(opts Options, assigned direct.Dir) *classifier {
	c := &classifier{opts: opts, direct: assigned}
	if opts.KubeletDir != "" {
		if dir, err := filepath.EvalSymlinks(opts.KubeletDir); err == nil {
			c.kubelet = dir
		}
	}
	return c
}

// source is what was found out about a bind's source.
type source struct {
	// path is the source without symbolic links.
	path string
	info fs.FileInfo
	// loc is set when located.
	loc     location
	located bool
}

func (c *classifier) classify(b guestspec.Bind) (Volume, error) {
	v := Volume{Bind: b, Kind: Shared, Key: b.Source}
	src, err := c.look(b.Source)
	if b.Socket || err == nil && src.info.Mode().Type() == fs.ModeSocket {
		return socketVolume(v, src, err)
	}
	if err != nil {
		if c.opts.Share {
			return v, nil // sharing it reports what is wrong
		}
		return v, err
	}
	if found, err := c.assigned(&v, src); found || err != nil {
		return v, err
	}
	if isDisk(src.path, src.info) {
		v.Kind, v.Disk.Path = Device, src.path
		return v, nil
	}
	if src.located {
		return c.kubeletVolume(v, src)
	}
	if c.opts.Share {
		return v, nil
	}
	v.Back = !v.ReadOnly && src.info.Mode().IsRegular() && isMessage(c.kubelet, src.path)
	return copied(v, src)
}

func (c *classifier) look(path string) (src source, err error) {
	src.path, err = filepath.EvalSymlinks(path)
	if err == nil {
		src.info, err = os.Stat(src.path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return src, fmt.Errorf("source %s does not exist: %w", path, errdefs.ErrNotFound)
	}
	if err != nil {
		return src, fmt.Errorf("inspect source: %w", err)
	}
	if c.kubelet != "" {
		src.loc, src.located = locate(c.kubelet, src.path)
	}
	return src, nil
}

// kubeletVolume classifies what is below the kubelet's directory.
func (c *classifier) kubeletVolume(v Volume, src source) (Volume, error) {
	plugin := src.loc.plugin
	if src.loc.subPath() {
		// A directory of that name elsewhere is a CSI driver's.
		dir := location{pod: src.loc.pod, plugin: emptyDirPlugin, volume: src.loc.volume}.dir()
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			return c.emptyDir(v, src, dir)
		}
	}
	switch {
	case plugin == emptyDirPlugin:
		return c.emptyDir(v, src, src.loc.dir())
	case !c.opts.Share:
		return copied(v, src)
	case slices.Contains(watchedPlugins, plugin) && v.IDMap == nil && filesync.Check(v.Source, Limits) == nil:
		// A copy has the owners of the host's files, so an idmapped volume
		// stays shared.
		v.Kind = Copied
	}
	return v, nil
}

// copied makes v a Copied volume: without a share this is the only way for
// files.
func copied(v Volume, src source) (Volume, error) {
	switch mode := src.info.Mode(); {
	case mode.IsDir(), mode.IsRegular():
	default:
		return v, fmt.Errorf("the source is %s, and without a shared file system (shared_fs) only directories and regular files get into the guest: %w",
			kindOf(mode), errdefs.ErrInvalidArgument)
	}
	if v.IDMap != nil {
		return v, fmt.Errorf("without a shared file system (shared_fs) a mount of a pod with user namespaces cannot have its owners mapped: %w",
			errdefs.ErrNotImplemented)
	}
	if err := filesync.Check(v.Source, Limits); err != nil {
		return v, fmt.Errorf("without a shared file system files are copied into the guest, at most %d of them with %d bytes together; "+
			"have a smaller volume, one on a disk, or shared_fs = \"virtio-fs\": %w", Limits.Files, Limits.Bytes, err)
	}
	v.Kind = Copied
	return v, nil
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeCharDevice != 0:
		return "a character device"
	case mode&fs.ModeDevice != 0:
		return "a block device"
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	}
	return "of mode " + mode.String()
}
