package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/containerd/containerd/api/types"
	cfs "github.com/containerd/continuity/fs"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// validName matches a container's name: it is used in file names, and as an id
// for the shim.
var validName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}$`)

// MakeContainer makes a container's directory and keeps its image's layers in the
// store until RemoveContainer. The caller has called Use. It fails with
// errdefs.ErrAlreadyExists if the name is in use.
func (s *Store) MakeContainer(name string, img Image) (dir string, err error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	dir = s.ContainerDir(name)
	if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("container %s: %w", name, errdefs.ErrAlreadyExists)
	} else if err != nil {
		return "", fmt.Errorf("make container: %w", err)
	}
	if err := WriteJSON(filepath.Join(dir, imageFile), &img); err != nil {
		return "", errors.Join(err, s.RemoveContainer(name))
	}
	return dir, nil
}

// CheckName refuses an invalid container name.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("container name %.100q: want 1 to 64 letters, digits, dots, dashes and underscores, the first a letter or digit: %w",
			name, errdefs.ErrInvalidArgument)
	}
	return nil
}

// HasContainer reports whether the store at root, which need not exist, has a
// container of that name.
func HasContainer(root, name string) bool {
	if CheckName(name) != nil {
		return false
	}
	_, err := os.Stat(filepath.Join(root, containersDir, name))
	return err == nil
}

// ContainerDir returns the directory of the container with that name, in which
// the caller may keep other files.
func (s *Store) ContainerDir(name string) string {
	return filepath.Join(s.root, containersDir, filepath.Base(filepath.Clean("/"+name)))
}

// Containers lists the containers' names, sorted.
func (s *Store) Containers() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.root, containersDir))
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	var names []string
	for _, e := range entries {
		if validName.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// RemoveContainer removes a container's files. It is not an error if there are
// none. The layers stay until the next Sweep.
func (s *Store) RemoveContainer(name string) error {
	if !validName.MatchString(name) {
		return nil
	}
	if err := os.RemoveAll(s.ContainerDir(name)); err != nil {
		return fmt.Errorf("remove container: %w", err)
	}
	return nil
}

// Rootfs makes the container's root file system and returns its mounts. Without
// overlayfs there are none, and target gets a copy of the image's files. The caller
// has called Use.
func (s *Store) Rootfs(name, target string) ([]*types.Mount, error) {
	img, err := s.imageOf(name)
	if err != nil {
		return nil, fmt.Errorf("make root file system: %w", err)
	}
	overlay, err := s.overlay()
	if err != nil {
		return nil, fmt.Errorf("make root file system: %w", err)
	}
	if !overlay {
		from, ok := s.single(img)
		if !ok {
			return nil, fmt.Errorf("copy root file system: image %s was unpacked as %d layers, and overlayfs cannot stack them now: %w",
				img.Name, len(img.Layers), errdefs.ErrFailedPrecondition)
		}
		if err := cfs.CopyDir(target, from); err != nil {
			return nil, fmt.Errorf("copy root file system: %w", err)
		}
		return nil, nil
	}
	lower := topFirst(img.Layers, filepath.Join(s.root, layersDir))
	if img.Dir != "" {
		if err := checkDir(img.Dir); err != nil {
			return nil, err
		}
		lower = img.Dir
	}
	upper, work := filepath.Join(s.ContainerDir(name), "upper"), filepath.Join(s.ContainerDir(name), "work")
	if err := s.makeUpper(img, upper); err != nil {
		return nil, err
	}
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, fmt.Errorf("make root file system: %w", err)
	}
	return []*types.Mount{{
		Type: "overlay", Source: "overlay",
		Options: []string{"lowerdir=" + lower, "upperdir=" + upper, "workdir=" + work},
	}}, nil
}

// makeUpper makes the directory of the container's own files. It is the root
// directory that the container sees, so it gets the mode and owner of the
// image's.
func (s *Store) makeUpper(img Image, upper string) error {
	top := img.Dir
	if top == "" {
		top = s.layerPath(img.Layers[len(img.Layers)-1])
	}
	var stat unix.Stat_t
	err := unix.Stat(top, &stat)
	if err == nil {
		err = unix.Mkdir(upper, 0o700)
	}
	if err == nil {
		err = unix.Chown(upper, int(stat.Uid), int(stat.Gid))
	}
	if err == nil {
		err = unix.Chmod(upper, stat.Mode&0o7777)
	}
	if err != nil {
		return fmt.Errorf("make root file system from %s: %w", top, err)
	}
	return nil
}

// imageOf returns the image that a container runs.
func (s *Store) imageOf(name string) (Image, error) {
	return readImage(filepath.Join(s.ContainerDir(name), imageFile))
}
