package hostcgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// sparesDir holds the cgroups of processes that make templates and spare
// machines, each named by its pid.
const sparesDir = overheadDir + "/spares"

// NewForSpare plans the cgroup of this process if it works for no pod yet: it
// makes a template or has a spare machine. root is as in Options. With what the
// process starts from then on it is charged for nothing to the engine. Release
// moves all of it back; what was charged until then is no other cgroup's.
func NewForSpare(root string) (*Cgroup, error) {
	return New(Options{Root: root, Name: filepath.Join(filepath.Base(sparesDir), strconv.Itoa(os.Getpid()))})
}

// SweepSpares removes the cgroups that killed processes have left (NewForSpare).
// root is as in Options.
func SweepSpares(root string) error {
	if root == "" {
		root = DefaultRoot
	}
	found, err := hierarchies(root)
	if err != nil {
		if errdefs.IsNotFound(err) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	var errs []error
	for _, h := range found {
		errs = append(errs, sweep(h.dir(sparesDir)))
	}
	return errors.Join(errs...)
}

// sweep removes the cgroups in dir whose processes have ended. One that still has
// a process, such as a machine that is just being killed, stays until the next
// time.
func sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list cgroups of spares: %w", err)
	}
	var errs []error
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if err := os.Remove(path); !errors.Is(err, unix.EBUSY) {
			errs = append(errs, removeParents(path, err))
		}
	}
	return errors.Join(errs...)
}
