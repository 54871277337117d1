package engine

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/image"
)

// UnpackImage unpacks an image of an archive of image.Build into dir.
func UnpackImage(archive, name, dir string) error {
	layer, err := image.Open(archive, name)
	if err != nil {
		return err
	}
	defer layer.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for r := tar.NewReader(layer); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = unpackEntry(root, h, r)
		}
		if err != nil {
			return fmt.Errorf("unpack %s: %w", name, err)
		}
	}
}

func unpackEntry(root *os.Root, h *tar.Header, r io.Reader) error {
	name := filepath.Clean(h.Name)
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(name, 0o755); err != nil {
			return err
		}
	case tar.TypeLink:
		return root.Link(h.Linkname, name)
	case tar.TypeReg:
		f, err := root.Create(name)
		if err != nil {
			return err
		}
		if _, err := io.Copy(f, r); err != nil {
			return errors.Join(err, f.Close())
		}
		if err := f.Close(); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%s: type %q", name, h.Typeflag)
	}
	return errors.Join(root.Lchown(name, h.Uid, h.Gid), root.Chmod(name, h.FileInfo().Mode()))
}

// overlayHome returns where iSulad's overlay driver keeps the storage of
// containers: outside the bundle.
func (e *Engine) overlayHome() string { return filepath.Join(e.graph(), "storage", "overlay") }

// Rootfs returns the path of the container's root file system on the host,
// while it is mounted.
func (c *Container) Rootfs() string { return filepath.Join(c.layerDir(), "merged") }

// Upper returns the directory with the container's own changes.
func (c *Container) Upper() string { return filepath.Join(c.layerDir(), "diff") }

func (c *Container) layerDir() string { return filepath.Join(c.engine.overlayHome(), c.ID) }

// openStorage makes the overlay driver's home a private mount, as iSulad's
// does: a shim in its own mount namespace would miss what is mounted
// there later. It is a tmpfs, which every overlay can have as its upper layer.
func (e *Engine) openStorage() error {
	home := e.overlayHome()
	if err := os.MkdirAll(home, 0o700); err != nil {
		return fmt.Errorf("make storage: %w", err)
	}
	if err := unix.Mount("tmpfs", home, "tmpfs", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount storage: %w", err)
	}
	if err := unix.Mount("", home, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make storage private: %w", err)
	}
	return nil
}

func (c *Container) mountRootfs() error {
	lower := c.engine.opts.Images[c.cfg.Image]
	work := filepath.Join(c.layerDir(), "work")
	for _, dir := range []string{c.Upper(), work, c.Rootfs()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make layer: %w", err)
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", lower, c.Upper(), work)
	if err := unix.Mount("overlay", c.Rootfs(), "overlay", 0, options); err != nil {
		return fmt.Errorf("mount rootfs: %w", err)
	}
	return nil
}

// unmountRootfs fails if nothing is mounted: the shim must not unmount it.
func (c *Container) unmountRootfs() error {
	if err := unix.Unmount(c.Rootfs(), unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount rootfs: %w", err)
	}
	return nil
}
