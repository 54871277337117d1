package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Root is the default directory of the store.
const Root = "/var/lib/katabox"

const (
	layersDir     = "layers"
	imagesDir     = "images"
	containersDir = "containers"
	useLock       = "lock"
	cleanLock     = "clean"
	// newPrefix starts the names of directories that are not complete yet.
	newPrefix = "new-"
)

// lockPause is the time between two attempts to lock.
const lockPause = 50 * time.Millisecond

// Store is a store on disk. Any number of processes may use one.
type Store struct {
	root string
	// overlay reports whether the kernel stacks layers. Its first call makes a
	// directory among them: the caller has called Use.
	overlay func() (bool, error)
}

// Open opens the store at root, an absolute path, and creates what is missing of
// it. Only root can read it.
func Open(root string) (*Store, error) {
	s := &Store{root: root}
	for _, dir := range []string{"", layersDir, imagesDir, containersDir} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
	}
	s.overlay = sync.OnceValues(s.tryOverlay)
	return s, nil
}

// Use keeps the store's layers from being swept until unlock is called or the
// process ends. It waits until a running sweep or ctx has ended.
func (s *Store) Use(ctx context.Context) (unlock func() error, err error) {
	return s.lock(ctx, useLock, unix.LOCK_SH)
}

// Clean keeps other processes from cleaning up after dead containers until unlock is
// called or the process ends: a container that exists when Clean has returned keeps
// its name until then. Clean waits until another process's cleanup or ctx has ended.
func (s *Store) Clean(ctx context.Context) (unlock func() error, err error) {
	return s.lock(ctx, cleanLock, unix.LOCK_EX)
}

// Scratch returns a directory for temporary directories. The next sweep removes those
// that a killed process has left; the caller has called Use.
func (s *Store) Scratch() string { return filepath.Join(s.root, layersDir) }

func (s *Store) lock(ctx context.Context, name string, how int) (func() error, error) {
	f, err := os.OpenFile(filepath.Join(s.root, name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock store: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil {
			return f.Close, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock store: %w", err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock store: %w", context.Cause(ctx)), f.Close())
		case <-time.After(lockPause):
		}
	}
}

// Sweep removes layers that neither an image nor a container uses, and what
// killed processes left. It does nothing while another process uses the store.
func (s *Store) Sweep() error {
	return s.ifUnused(func() error { return s.sweep(false) })
}

// SweepImages is Sweep, and removes the images that no container runs first. It waits
// until no other process uses the store, or ctx has ended.
func (s *Store) SweepImages(ctx context.Context) error {
	unlock, err := s.lock(ctx, useLock, unix.LOCK_EX)
	if err != nil {
		return fmt.Errorf("remove images: %w", err)
	}
	return errors.Join(s.sweep(true), unlock())
}

func (s *Store) sweep(images bool) error {
	used, err := s.usedLayers(images)
	if err != nil {
		return err
	}
	return s.removeLayersBut(used)
}

// RemoveContainersWithout removes the directories of containers that do not have a
// file of that name. It does nothing while another process uses the store.
func (s *Store) RemoveContainersWithout(file string) error {
	return s.ifUnused(func() error {
		names, err := s.Containers()
		errs := []error{err}
		for _, name := range names {
			_, err := s.removeWithout(name, file)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// RemoveContainerWithout removes the directory of one container, and reports whether it
// did. It does nothing if the container has a file of that name, or while another
// process uses the store.
func (s *Store) RemoveContainerWithout(name, file string) (removed bool, err error) {
	err = s.ifUnused(func() error {
		removed, err = s.removeWithout(name, file)
		return err
	})
	return removed && err == nil, err
}

// removeWithout removes a container's directory unless it has a file of that name. The
// caller has the store for itself.
func (s *Store) removeWithout(name, file string) (removed bool, err error) {
	if _, err := os.Stat(filepath.Join(s.ContainerDir(name), file)); !errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return true, s.RemoveContainer(name)
}

// ifUnused calls f while no other process uses the store; if one does, it does
// nothing.
func (s *Store) ifUnused(f func() error) error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	unlock, err := s.lock(now, useLock, unix.LOCK_EX)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f(), unlock())
}

// usedLayers collects the layers that must stay.
func (s *Store) usedLayers(forgetUnused bool) (map[string]bool, error) {
	used := make(map[string]bool)
	containers, err := s.glob(containersDir + "/*/" + imageFile)
	if err != nil {
		return nil, fmt.Errorf("sweep store: %w", err)
	}
	for _, path := range containers {
		if err := addLayers(used, path); err != nil {
			return nil, err
		}
	}
	if forgetUnused {
		if err := s.forgetImagesBut(used); err != nil {
			return nil, err
		}
	}
	images, err := s.glob(imagesDir + "/*.json")
	if err != nil {
		return nil, fmt.Errorf("sweep store: %w", err)
	}
	for _, path := range images {
		if err := addLayers(used, path); err != nil {
			return nil, err
		}
	}
	return used, nil
}

// glob lists the paths that match a pattern below the store's root, of which no
// character is a part of the pattern.
func (s *Store) glob(pattern string) ([]string, error) {
	names, err := fs.Glob(os.DirFS(s.root), pattern)
	for i, name := range names {
		names[i] = filepath.Join(s.root, name)
	}
	return names, err
}

// addLayers adds the layers of the image that a file describes, or none if the
// file was removed meanwhile.
func addLayers(used map[string]bool, path string) error {
	img, err := readImage(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweep store: %w", err)
	}
	for _, layer := range img.Layers {
		used[layer] = true
	}
	return nil
}

// forgetImagesBut removes the images that have a layer which no container uses,
// and those without layers.
func (s *Store) forgetImagesBut(used map[string]bool) error {
	images, err := s.glob(imagesDir + "/*.json")
	if err != nil {
		return fmt.Errorf("sweep store: %w", err)
	}
	for _, path := range images {
		img, err := readImage(path)
		if err == nil && len(img.Layers) > 0 && used[img.Layers[len(img.Layers)-1]] {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("forget image: %w", err)
		}
	}
	return nil
}

func (s *Store) removeLayersBut(used map[string]bool) error {
	entries, err := os.ReadDir(filepath.Join(s.root, layersDir))
	if err != nil {
		return fmt.Errorf("sweep store: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !used[e.Name()] {
			errs = append(errs, removeTree(filepath.Join(s.root, layersDir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// removeTree removes a directory that must not be mistaken for a complete one: it
// renames it first.
func removeTree(dir string) error {
	doomed := filepath.Join(filepath.Dir(dir), newPrefix+"removed-"+filepath.Base(dir))
	if err := os.Rename(dir, doomed); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	if err := os.RemoveAll(doomed); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

// WriteJSON replaces a file; after a crash the file is the old or the new one.
func WriteJSON(path string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+newPrefix+"*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(f.Name()) // fails after the rename, as intended
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
