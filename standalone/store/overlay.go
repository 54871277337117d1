package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/ownthread"
)

// tryOverlay reports whether the store's layers can be stacked. An error says nothing
// about that.
func (s *Store) tryOverlay() (bool, error) {
	works, err := overlayWorks(filepath.Join(s.root, layersDir))
	if err == nil && works {
		err = checkDir(s.root)
	}
	if err != nil {
		return false, fmt.Errorf("try overlayfs in the store: %w", err)
	}
	return works, nil
}

// overlayWorks reports whether directories below dir can be the layers of an
// overlay: the kernel has overlayfs, and dir is not on an overlay itself. It is an
// error if that cannot be tried. The attempt leaves nothing.
func overlayWorks(dir string) (works bool, err error) {
	probe, err := os.MkdirTemp(dir, newPrefix)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(probe)) }()
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(probe, name), 0o700); err != nil {
			return false, err
		}
	}
	err = inOwnMounts(func() error {
		if err := unix.Chdir(probe); err != nil {
			return err
		}
		works = unix.Mount("overlay", "merged", "overlay", 0, "lowerdir=lower,upperdir=upper,workdir=work") == nil
		return nil
	})
	return works, err
}

// inRoot calls f on a thread whose root directory is root.
func inRoot(root string, f func() error) error {
	return inOwnMounts(func() error {
		if err := unix.Chroot(root); err != nil {
			return fmt.Errorf("enter %s: %w", root, err)
		}
		if err := unix.Chdir("/"); err != nil {
			return fmt.Errorf("enter %s: %w", root, err)
		}
		return f()
	})
}

// inOwnMounts calls f on a thread with its own mounts and its own working
// directory, which end with it.
func inOwnMounts(f func() error) error {
	return ownthread.Run(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("make mount namespace: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("make mounts private: %w", err)
		}
		return f()
	})
}

// View calls f, on a separate thread, with a directory that shows the image's
// files. Only that thread sees the directory, and only while f runs. It waits as Use
// does.
func (s *Store) View(ctx context.Context, img Image, f func(root string) error) (err error) {
	if dir, ok := s.single(img); ok {
		unlock, err := s.Use(ctx) // a sweep would remove the directory
		if err != nil {
			return err
		}
		return errors.Join(f(dir), unlock())
	}
	return s.stacked(ctx, topFirst(img.Layers, ""), f)
}

// stacked is View with directories in overlayfs' order. Relative ones are layers.
func (s *Store) stacked(ctx context.Context, lower string, f func(root string) error) (err error) {
	unlock, err := s.Use(ctx) // a sweep would remove the directory
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	target, err := os.MkdirTemp(filepath.Join(s.root, layersDir), newPrefix)
	if err != nil {
		return fmt.Errorf("inspect image: %w", err)
	}
	err = inOwnMounts(func() error {
		if err := unix.Chdir(filepath.Join(s.root, layersDir)); err != nil {
			return fmt.Errorf("inspect image: %w", err)
		}
		// Without index=off a kernel may refuse a directory that another overlay writes to.
		if err := unix.Mount("overlay", target, "overlay", unix.MS_RDONLY, "index=off,lowerdir="+lower); err != nil {
			return fmt.Errorf("inspect image: mount overlay: %w", err)
		}
		return f(target)
	})
	return errors.Join(err, os.RemoveAll(target))
}

// single returns the one directory that has all the image's files, if there is
// one.
func (s *Store) single(img Image) (string, bool) {
	switch {
	case img.Dir != "":
		return img.Dir, true
	case len(img.Layers) == 1:
		return s.layerPath(img.Layers[0]), true
	}
	return "", false
}

// topFirst joins layers in overlayfs' order, each below dir.
func topFirst(layers []string, dir string) string {
	paths := make([]string, 0, len(layers))
	for i := len(layers) - 1; i >= 0; i-- {
		paths = append(paths, filepath.Join(dir, layers[i]))
	}
	return strings.Join(paths, ":")
}

// checkDir checks that a directory's path can be a part of an overlay's options: it
// must not have characters with a meaning there.
func checkDir(dir string) error {
	if strings.ContainsAny(dir, `:,\`) {
		return fmt.Errorf("directory %s: its path has a colon, a comma or a backslash: %w", dir, errdefs.ErrInvalidArgument)
	}
	return nil
}
