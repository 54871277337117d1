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

// Files of a v2 cgroup: the controllers that it has, and those that it turns on for
// its children.
const (
	controllersFile = "cgroup.controllers"
	subtreeFile     = "cgroup.subtree_control"
)

const (
	// makeTries bounds retries in the race with ending pods, which may remove
	// an empty parent just before a cgroup is made in it.
	makeTries = 10
	// moveTries bounds how often moving a process that the kernel is still
	// creating is tried, and movePause is the time between.
	moveTries = 10
	movePause = 5 * time.Millisecond
	// removePause is the time between two tries to remove a cgroup from which
	// the kernel is still removing dead processes.
	removePause = 2 * time.Millisecond
)

// makeDir makes a cgroup and its missing parents.
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

// gone reports whether err is that of a cgroup that is being removed: its files
// are still found, but fail with ENODEV (the kernel's fs/kernfs/file.c).
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// makeBelow makes what is missing between the hierarchy's root and dir, and
// marks it, except the pod's own cgroup.
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
		return nil // another maker's
	case parent:
		mark(dir)
	}
	return h.prepare(dir)
}

// prepare makes a new cgroup ready for processes.
func (h hierarchy) prepare(dir string) error {
	switch {
	case h.unified:
		for _, above := range h.above(dir) {
			enable(above)
		}
		return nil
	case h.has("cpuset"):
		return h.inheritCpuset(dir)
	}
	return nil
}

// inheritCpuset gives a v1 cpuset its parent's CPUs and memory nodes: a new one
// has none, and accepts no process (the kernel's
// Documentation/admin-guide/cgroup-v1/cpusets.rst). Another pod may be making
// the parent right now.
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

// podControllers are the v2 controllers that count what a pod uses, or select
// its CPUs.
const podControllers = "cpu cpuset memory io pids"

// enable turns controllers on for the children of a v2 cgroup, as far as they are off. Some may be missing, or refused: the
// CPU's, for example, while realtime processes run. The others are still turned on.
//
// The pod's cgroups need them in every cgroup above. systemd's slices pass on no
// cpuset, and the kubelet makes a pod's slice anew at each look at the pod while it has
// none (k8s.io/kubernetes pkg/kubelet/cm, cgroupV2impl.Validate): with that, systemd
// turns off all others in the slice. While the slice passes the cpuset on, the kernel
// refuses to take it from the slice (EBUSY).
func enable(dir string) {
	subtree := filepath.Join(dir, subtreeFile)
	on, _ := words(subtree)
	for _, name := range without(strings.Fields(podControllers), on) {
		_ = write(subtree, "+"+name)
	}
}

// markName is an extended attribute of the parent cgroups that pods have made,
// which may be removed when they are empty. All others belong to their makers,
// for example the kubelet.
const markName = "trusted.katabox.made"

// mark is without effect for a shim without CAP_SYS_ADMIN: the cgroup stays.
func mark(dir string) { _ = unix.Setxattr(dir, markName, []byte("1"), 0) }

func marked(dir string) bool {
	n, err := unix.Getxattr(dir, markName, nil)
	return err == nil && n > 0
}

// move moves a process, or with tasksFile a thread, into a cgroup. The kernel
// may refuse a thread that it is still creating (EINVAL; Linux 6.0's
// kernel/sched/core.c, cpu_cgroup_can_attach), such as one that the Go runtime
// is starting.
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

// write writes an existing file of a cgroup; it never creates one.
func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// removeDir removes a cgroup and its marked parents that have become empty. It
// is no error if it does not exist. It waits, within ctx, until the kernel has
// removed dead processes from it.
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

// removeParents completes a removal, whose error is err: if that is nil or
// means that the cgroup was gone, it removes the marked parents that have
// become empty.
func removeParents(dir string, err error) error {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	for dir = filepath.Dir(dir); marked(dir) && os.Remove(dir) == nil; {
		dir = filepath.Dir(dir)
	}
	return nil
}

// contents names the processes that keep a cgroup from being removed.
func contents(dir string) string {
	procs, _ := os.ReadFile(filepath.Join(dir, procsFile))
	if len(procs) == 0 {
		return "no process"
	}
	return "processes " + strings.Join(strings.Fields(string(procs)), ", ")
}
