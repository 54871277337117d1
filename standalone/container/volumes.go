package container

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	cfs "github.com/containerd/continuity/fs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// addVolumes adds the directories that an image declares as volumes to the mounts, if
// the root file system is read-only; otherwise it is as writable as they would be. Each
// is a directory of the container with what the image, at root, has there. One that
// another mount covers is not needed. They come before the others, which may be below.
func (c *Container) addVolumes(root string, o *Options) error {
	if !o.Spec.ReadOnly {
		return nil
	}
	var volumes []specs.Mount
	for i, at := range slices.Sorted(maps.Keys(c.img.Config.Volumes)) {
		at = path.Join("/", at)
		if at == "/" || slices.ContainsFunc(o.Spec.Mounts, func(m specs.Mount) bool { return covers(m.Destination, at) }) {
			continue
		}
		dir := filepath.Join(c.dir, "volumes", strconv.Itoa(i))
		if err := makeVolume(root, at, dir); err != nil {
			return fmt.Errorf("make the image's volume %s: %w", at, err)
		}
		volumes = append(volumes, specs.Mount{Type: "bind", Source: dir, Destination: at, Options: []string{"rbind", "rprivate", "rw"}})
	}
	o.Spec.Mounts = append(volumes, o.Spec.Mounts...)
	return nil
}

// covers reports whether a mount at target shows what is at a path.
func covers(target, at string) bool {
	target = path.Join("/", target)
	return at == target || strings.HasPrefix(at, strings.TrimSuffix(target, "/")+"/")
}

// makeVolume makes a directory with the content, mode and owner of the image's.
func makeVolume(root, at, dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	from, err := cfs.RootPath(root, at)
	if err != nil {
		return err
	}
	if info, err := os.Stat(from); err != nil || !info.IsDir() {
		return os.Mkdir(dir, 0o755)
	}
	return cfs.CopyDir(dir, from)
}
