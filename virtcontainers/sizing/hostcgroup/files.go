package hostcgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The files of a cgroup by which processes and, with v1, threads are moved
// into it (cgroups(7)).
const (
	procsFile = "cgroup.procs"
	tasksFile = "tasks"
)

const (
	// makeTries bounds the race with pods that end: they remove an empty
	// parent just when the next cgroup is about to be made in it.
	makeTries = 10
	// moveTries bounds how often a process that the kernel has not quite made
	// yet is tried to be moved, and movePause is the time between.
	moveTries = 10
	movePause = 5 * time.Millisecond
	// removePause is the time between two tries to remove a cgroup out of
	// which the kernel still takes the processes that have ended.
	removePause = 2 * time.Millisecond
)

// makeDir makes a cgroup and those around it, as far as they are missing.
func (h hierarchy) makeDir(dir string) error {
	var err error
	for range makeTries {
		if err = h.makeBelow(dir, false); !gone(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	return nil
}

// gone is the error of a cgroup that is removed at the same time: its files
// are still found, and give ENODEV (the kernel's fs/kernfs/file.c).
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// makeBelow makes what is missing between the hierarchy's root and dir, and
// marks it, but for the pod's own cgroup.
func (h hierarchy) makeBelow(dir string, parent bool) error {
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrNotExist) && dir != h.mount {
		if err := h.makeBelow(filepath.Dir(dir), true); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o755)
	}
	exists := errors.Is(err, fs.ErrExist)
	switch {
	case err != nil && !exists:
		return err
	case parent && exists:
		return nil // it is another's
	case parent:
		mark(dir)
	}
	return h.prepare(dir)
}

// prepare makes a new cgroup fit for processes.
func (h hierarchy) prepare(dir string) error {
	switch {
	case h.unified:
		enable(filepath.Dir(dir))
		return nil
	case h.has("cpuset"):
		return h.inheritCpuset(dir)
	}
	return nil
}

// inheritCpuset gives a v1 cpuset its parent's CPUs and memory nodes: a new
// one has none, and takes no process (the kernel's
// Documentation/admin-guide/cgroup-v1/cpusets.rst). The parent may be one that
// another pod makes just now.
func (h hierarchy) inheritCpuset(dir string) error {
	if dir == h.mount {
		return nil
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(own)) != "" {
			continue
		}
		if err := h.inheritCpuset(filepath.Dir(dir)); err != nil {
			return err
		}
		all, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if err != nil {
			return err
		}
		if err := write(filepath.Join(dir, name), string(all)); err != nil {
			return err
		}
	}
	return nil
}

// podControllers are those of v2 that count what a pod uses, or say which CPUs
// it may use.
const podControllers = "cpu cpuset memory io pids"

// enable turns controllers on for the children of a v2 cgroup. Some may be missing, or refused: the CPU's, for example, while
// realtime processes run. The others are turned on all the same.
func enable(dir string) {
	for c := range strings.FieldsSeq(podControllers) {
		_ = write(filepath.Join(dir, "cgroup.subtree_control"), "+"+c)
	}
}

// markName is an extended attribute of the cgroups that pods have made on the
// way to their own: those that may be removed when they are empty. All others
// are their makers', the kubelet's for one.
const markName = "trusted.katabox.made"

// mark is without effect for a shim without CAP_SYS_ADMIN: the cgroup stays.
func mark(dir string) { _ = unix.Setxattr(dir, markName, []byte("1"), 0) }

func marked(dir string) bool {
	n, err := unix.Getxattr(dir, markName, nil)
	return err == nil && n > 0
}

// move moves a process, or with tasksFile a thread, into a cgroup. The kernel
// may refuse what it has not quite made yet (EINVAL; Linux 6.0's
// kernel/sched/core.c, cpu_cgroup_can_attach), such as a thread that the Go
// runtime starts just now.
func move(dir, file string, id int) error {
	var err error
	for range moveTries {
		err = write(filepath.Join(dir, file), strconv.Itoa(id))
		if !errors.Is(err, unix.EINVAL) {
			break
		}
		time.Sleep(movePause)
	}
	if err != nil {
		return fmt.Errorf("move %d into cgroup: %w", id, err)
	}
	return nil
}

// write writes a file of a cgroup, which is never made by it.
func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// removeDir removes a cgroup and the marked ones around it that have become
// empty. One that is not there is not an error. It waits, as long as ctx
// allows, until the kernel has taken out what was in it.
func removeDir(ctx context.Context, dir string) error {
	for {
		err := os.Remove(dir)
		if !errors.Is(err, unix.EBUSY) {
			return removeParents(dir, err)
		}
		select {
		case <-time.After(removePause):
		case <-ctx.Done():
			return fmt.Errorf("remove cgroup: %w; in it: %s", err, contents(dir))
		}
	}
}

// removeParents ends a removal: with the marked parents that have become empty,
// if err, that of the removal, is nil or says that the cgroup was gone.
func removeParents(dir string, err error) error {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	for dir = filepath.Dir(dir); marked(dir) && os.Remove(dir) == nil; {
		dir = filepath.Dir(dir)
	}
	return nil
}

// contents are the processes that keep a cgroup from being removed.
func contents(dir string) string {
	procs, _ := os.ReadFile(filepath.Join(dir, procsFile))
	if len(procs) == 0 {
		return "no process"
	}
	return "processes " + strings.Join(strings.Fields(string(procs)), ", ")
}
