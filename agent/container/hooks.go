package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
)

// The kinds of hooks, as the OCI runtime specification has them (config.md,
// POSIX-platform Hooks), and the names of their folders.
const (
	prestart  = "prestart"
	poststart = "poststart"
	poststop  = "poststop"
)

var hookKinds = []string{prestart, poststart, poststop}

// Hooks are programs in the guest that run for every container: their paths by
// kind, in the order in which they run.
type Hooks map[string][]string

// findHooks lists the hooks in the folders of dir, an absolute directory in the
// guest, ordered by name: executable regular files. Anything else is skipped
// and logged, symbolic links too. A folder may be missing; dir may not.
func findHooks(dir string) (Hooks, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("find hooks: %q is not an absolute path: %w", dir, errdefs.ErrInvalidArgument)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("find hooks: the guest has no directory %s: %w", dir, errdefs.ErrNotFound)
	}
	hooks := Hooks{}
	for _, kind := range hookKinds {
		entries, err := os.ReadDir(filepath.Join(dir, kind)) // sorted
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("find hooks: %w", err)
		}
		for _, entry := range entries {
			path := filepath.Join(dir, kind, entry.Name())
			if !isHook(entry) {
				log.L.Warnf("%s is not a hook: it is not a file that may be executed", path)
				continue
			}
			hooks[kind] = append(hooks[kind], path)
		}
	}
	return hooks, nil
}

// isHook reports whether a file is regular and has an execute bit.
func isHook(entry fs.DirEntry) bool {
	info, err := entry.Info()
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// SetHooks sets the hooks of containers created later to those in a directory in
// the guest. It must not be called concurrently with Create.
func (r *Runtime) SetHooks(dir string) error {
	hooks, err := findHooks(dir)
	if err != nil {
		return err
	}
	if len(hooks) == 0 {
		log.L.Warnf("%s holds no hooks: want executable files in its folders %q", dir, hookKinds)
	}
	r.hooks = hooks
	return nil
}
