package hostcgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/containerd/errdefs"
)

// Existing is a cgroup that another program made and will remove, in the
// hierarchies that have it.
type Existing struct {
	places []existingPlace
}

// existingPlace is an Existing in one hierarchy.
type existingPlace struct {
	hierarchy
	dir string
	// home is the cgroup that this process was in.
	home string
}

// OpenExisting finds a cgroup by its absolute path below the hierarchies'
// roots. With v1 it is enough that one hierarchy has it. root is as in Options.
// The error is an errdefs.ErrNotFound or an errdefs.ErrInvalidArgument.
func OpenExisting(root, cgroup string) (*Existing, error) {
	if root == "" {
		root = DefaultRoot
	}
	if !path.IsAbs(cgroup) || path.Clean(cgroup) != cgroup {
		return nil, fmt.Errorf("open cgroup %q: want an absolute path without . and ..: %w", cgroup, errdefs.ErrInvalidArgument)
	}
	found, err := hierarchies(root)
	if err != nil {
		return nil, err
	}
	self, err := cgroupsOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	e := new(Existing)
	for _, h := range found {
		dir := h.dir(cgroup)
		_, err := os.Stat(dir)
		if err == nil {
			e.places = append(e.places, existingPlace{hierarchy: h, dir: dir, home: h.of(self)})
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("open cgroup: %w", err)
		}
	}
	if len(e.places) == 0 {
		return nil, fmt.Errorf("open cgroup %s: no hierarchy at %s has it: %w", cgroup, root, errdefs.ErrNotFound)
	}
	return e, nil
}

// Enter moves this process there, along with what it starts from then on. On an
// error it may be there in some hierarchies: Leave moves it back.
func (e *Existing) Enter() error {
	for _, p := range e.places {
		if err := move(p.dir, procsFile, os.Getpid()); err != nil {
			return err
		}
	}
	return nil
}

// Leave moves this process back to where it was.
func (e *Existing) Leave() error {
	var errs []error
	for _, p := range e.places {
		errs = append(errs, move(p.home, procsFile, os.Getpid()))
	}
	return errors.Join(errs...)
}

// CountsHugepages reports whether what starts in the cgroup is charged there for its huge
// pages. e may be nil.
func (e *Existing) CountsHugepages() bool {
	return e != nil && slices.ContainsFunc(e.places, func(p existingPlace) bool { return p.limitsHugepages() })
}

// in returns the cgroup's directory in a hierarchy, or empty. e may be nil.
func (e *Existing) in(h hierarchy) string {
	if e == nil {
		return ""
	}
	for _, p := range e.places {
		if p.mount == h.mount {
			return p.dir
		}
	}
	return ""
}
