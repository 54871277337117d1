package hostcgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Container is the cgroup that an engine chose for one container, in the
// hierarchy that limits memory: the only one of v2, or v1's of memory. It is
// only informative. SetMemory and Remove may be called concurrently.
type Container struct {
	hierarchy
	dir string
	// found is set if it existed already: its maker will remove it.
	found bool
}

// NewContainer plans the cgroup that an OCI spec names (linux.cgroupsPath, not
// empty); it makes nothing. root is as in Options.
func NewContainer(root, cgroupsPath string) (*Container, error) {
	if root == "" {
		root = DefaultRoot
	}
	path, err := containerPath(cgroupsPath)
	if err != nil {
		return nil, err
	}
	all, err := hierarchies(root)
	if err != nil {
		return nil, err
	}
	for _, h := range all {
		if h.limitsMemory() {
			return &Container{hierarchy: h, dir: h.dir(path)}, nil
		}
	}
	return nil, fmt.Errorf("no hierarchy at %s limits memory: %w", root, errdefs.ErrNotFound)
}

// Dir returns its directory, for RemoveContainer in another process.
func (c *Container) Dir() string { return c.dir }

// Make makes it, unless it exists. If another container of ours made it, it is
// shared and removed with the last; if another program made it, Remove leaves
// it.
func (c *Container) Make() error {
	var err error
	for range makeTries {
		if err = c.make(); !gone(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	return nil
}

func (c *Container) make() error {
	if err := c.makeBelow(filepath.Dir(c.dir), true); err != nil {
		return err
	}
	err := os.Mkdir(c.dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		c.found = !marked(c.dir)
		return nil
	}
	if err != nil {
		return err
	}
	mark(c.dir)
	return c.prepare(c.dir)
}

// Add moves a process into it.
func (c *Container) Add(pid int) error { return move(c.dir, procsFile, pid) }

// SetMemory limits its memory, in bytes; a negative value is no limit, 0
// changes nothing.
func (c *Container) SetMemory(limit int64) error {
	if limit == 0 {
		return nil
	}
	file, value := "memory.limit_in_bytes", strconv.FormatInt(max(limit, -1), 10)
	if c.unified {
		file = "memory.max"
		if limit < 0 {
			value = "max"
		}
	}
	if err := write(filepath.Join(c.dir, file), value); err != nil {
		return fmt.Errorf("limit memory: %w", err)
	}
	return nil
}

// Remove removes it. What Add moved there must have ended. If another container
// of ours is in it, it is removed with that.
func (c *Container) Remove(ctx context.Context) error {
	if c.found {
		return nil
	}
	return RemoveContainer(ctx, c.dir)
}

// RemoveContainer removes a container's cgroup: dir is Dir's result. It is no
// error if it does not exist; one that was not made for a container is left.
func RemoveContainer(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, removeWait)
	defer cancel()
	for marked(dir) && !used(dir) {
		err := os.Remove(dir)
		if err == nil || !errors.Is(err, unix.EBUSY) {
			return removeParents(dir, err)
		}
		select {
		case <-time.After(removePause): // the kernel is still removing dead processes
		case <-ctx.Done():
			return fmt.Errorf("remove cgroup: %w", err)
		}
	}
	return nil
}

// used reports whether a cgroup contains a process or another cgroup.
func used(dir string) bool {
	if populated(dir) {
		return true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if e.IsDir() {
			return true
		}
	}
	return false
}
