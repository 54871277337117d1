package hostcgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"
)

// Options say which cgroups to make.
type Options struct {
	// Root is where the host's cgroup file systems are; empty is DefaultRoot.
	Root string
	// Path is the cgroup that the engine chose for the sandbox's own
	// container (OCI's linux.cgroupsPath). If it is empty, the overhead cgroup
	// is the pod's own as well.
	Path string
	// Name is the cgroups' name, unique among the host's pods. It must be a
	// valid file name (NewForSpare's is in a directory).
	Name string
	// Only keeps the whole pod in its own cgroup (Kata's sandbox_cgroup_only);
	// without it there is an overhead cgroup.
	Only bool
	// Shim is the engine's cgroup for this process and its helpers, which are
	// charged there in the hierarchies that have it; if nil, they are with the
	// rest of the pod.
	Shim *Existing
}

// VM is a virtual machine and the most that it can use.
type VM struct {
	// PID is its process; VCPUs are its threads that run the guest.
	PID   int
	VCPUs []int
	// Memory is in bytes: the guest's, and what its process needs beside it. Threads
	// counts the process's.
	Memory, Threads uint64
	// Hugepages is how much of its memory, in bytes, is huge pages (OpenAbove).
	Hugepages uint64
}

// Cgroup is a pod's cgroups in all hierarchies. Its methods must not be called
// concurrently, except Add, Leave, Dirs and Regain.
type Cgroup struct {
	path   string
	places []place
	proc   string // where processes are read; tests replace it
}

// place is a pod's cgroups in one hierarchy.
type place struct {
	hierarchy
	// pod and overhead are directories, or empty if not needed. They are the
	// same if the engine named no cgroup.
	pod, overhead string
	// shim is Options.Shim's, or empty.
	shim string
	// home is the cgroup that this process was in.
	home string
	// had are the controllers that each of its cgroups had when it was made; nil with v1.
	had map[string][]string
}

// New plans a pod's cgroups; it makes nothing.
func New(opts Options) (*Cgroup, error) {
	if opts.Root == "" {
		opts.Root = DefaultRoot
	}
	overhead := overheadDir + "/" + opts.Name
	path, none := overhead, opts.Path == ""
	if !none {
		var err error
		if path, err = podPath(opts.Path, opts.Name); err != nil {
			return nil, err
		}
	}
	found, err := hierarchies(opts.Root)
	if err != nil {
		return nil, err
	}
	self, err := cgroupsOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	c := &Cgroup{path: path, proc: "/proc"}
	for _, h := range found {
		p := place{hierarchy: h, home: h.of(self), shim: opts.Shim.in(h)}
		if none || opts.Only || h.limitsMemory() || h.has(threadControllers...) || h.has(countsProcesses) {
			p.pod = h.dir(path)
		}
		if none || !opts.Only {
			p.overhead = h.dir(overhead)
		}
		c.places = append(c.places, p)
	}
	return c, nil
}

// Path returns the pod's cgroup, below the hierarchies' roots.
func (c *Cgroup) Path() string { return c.path }

// Dirs returns the directories that Make makes, for Remove in another process.
// Parents that Make adds are removed with them.
func (c *Cgroup) Dirs() []string {
	var dirs []string
	for _, p := range c.places {
		dirs = append(dirs, p.dirs()...)
	}
	return dirs
}

// dirs are the cgroups in this hierarchy.
func (p place) dirs() []string {
	dirs := slices.DeleteFunc([]string{p.pod, p.overhead}, func(dir string) bool { return dir == "" })
	return slices.Compact(dirs)
}

// apart reports whether the pod's own cgroup and its overhead differ.
func (p place) apart() bool { return p.overhead != "" && p.pod != p.overhead }

// Make makes the cgroups, which have no swap before SetPlace: a machine that continues from
// a saved one has containers' memory from its start. On an error some may exist: Remove
// removes them.
func (c *Cgroup) Make() error {
	for _, p := range c.places {
		for _, dir := range p.dirs() {
			if err := p.makeDir(dir); err != nil {
				return err
			}
		}
		if err := p.startWithoutSwap(); err != nil {
			return err
		}
		if p.overhead == "" {
			continue
		}
		if err := p.weighGroups(); err != nil {
			return err
		}
	}
	for i := range c.places {
		c.places[i].note()
	}
	return nil
}

// Add moves a process of the pod, other than the VM, to the cgroup to which it
// is charged, along with what it starts from then on. The first move after a
// while waits for a grace period of the kernel's RCU, tens of milliseconds
// (cgroup_threadgroup_rwsem).
func (c *Cgroup) Add(pid int) error {
	now, err := cgroupsOf(pid)
	if err != nil {
		return err
	}
	for _, p := range c.places {
		if err := p.moveFrom(now, p.helpers(), pid); err != nil {
			return err
		}
	}
	return nil
}

// cgroupsOf reads in which cgroups a process is.
func cgroupsOf(pid int) ([]byte, error) {
	now, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	return now, nil
}

// moveFrom moves a process, unless it is already in dir because a process there
// started it. That avoids most moves, each of which briefly stops all forks on
// the host.
func (p place) moveFrom(now []byte, dir string, pid int) error {
	if p.of(now) == dir {
		return nil
	}
	return move(dir, procsFile, pid)
}

// helpers returns the cgroup of this process and its helpers.
func (p place) helpers() string {
	if p.shim != "" {
		return p.shim
	}
	return p.rest()
}

// rest returns the cgroup of everything but the VM, unless the engine named
// another, and also of the VM if it does not fit into the pod's.
func (p place) rest() string {
	if p.overhead != "" {
		return p.overhead
	}
	return p.pod
}

// AddVM moves a VM, with the kernel's threads that work for it (workers.go), and may be
// called again when the VM gets another vCPU or more memory, or when the limits above the
// pod's cgroup change (Above.Limits). If one of those leaves no room for the VM, the VM is
// charged to the overhead, and short has that limit; otherwise, and with Options.Only, short
// is zero.
func (c *Cgroup) AddVM(vm VM, limits Limits) (short Short, err error) {
	now, err := cgroupsOf(vm.PID)
	if err != nil {
		return Short{}, err
	}
	for _, p := range c.places {
		less, err := p.addVM(now, vm, limits)
		if err != nil {
			return Short{}, err
		}
		short = short.and(less)
	}
	if err := c.follow(vm.PID); err != nil {
		// Only what they use is charged elsewhere.
		log.L.WithError(err).Warn("vhost's threads are not in the cgroup of their virtual machine")
	}
	return short, nil
}

func (p place) addVM(now []byte, vm VM, limits Limits) (short Short, err error) {
	dir := p.rest()
	if p.apart() && p.limitsMemory() {
		short = limits.short(vm, p.unified)
		if dir = p.pod; short != (Short{}) {
			dir = p.overhead
		}
	}
	if err := p.moveFrom(now, dir, vm.PID); err != nil {
		return Short{}, err
	}
	if !p.apart() || dir != p.overhead || p.unified || !p.has(threadControllers...) {
		return short, nil
	}
	for _, thread := range vm.VCPUs {
		if err := move(p.pod, tasksFile, thread); err != nil {
			return Short{}, err
		}
	}
	return short, nil
}

// Leave moves this process alone back to where it was. The first move after a
// while waits as Add's does.
func (c *Cgroup) Leave() error {
	now, err := cgroupsOf(os.Getpid())
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range c.places {
		if slices.Contains(p.dirs(), p.of(now)) {
			errs = append(errs, p.goHome(os.Getpid()))
		}
	}
	return errors.Join(errs...)
}

// Release moves this process, and those of its children that are still there,
// such as loggers, back to where this process was: a cgroup with processes
// cannot be removed. The VM and the pod's helpers must have ended.
func (c *Cgroup) Release() error {
	var errs []error
	for _, p := range c.places {
		for _, dir := range p.dirs() {
			errs = append(errs, p.evacuate(dir))
		}
	}
	return errors.Join(errs...)
}

// Evacuate is Release for a pod whose shim is dead: what is left in its cgroups goes
// to those of this process. dirs is Dirs' result; it is no error if some do not exist.
// root is as in Options.
func Evacuate(root string, dirs []string) error {
	dirs = slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool { return !populated(dir) })
	if len(dirs) == 0 {
		return nil
	}
	if root == "" {
		root = DefaultRoot
	}
	found, err := hierarchies(root)
	if err != nil {
		return err
	}
	self, err := cgroupsOf(os.Getpid())
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range found {
		p := place{hierarchy: h, home: h.of(self)}
		for _, dir := range dirs {
			if strings.HasPrefix(dir, h.mount+"/") {
				errs = append(errs, p.evacuate(dir))
			}
		}
	}
	return errors.Join(errs...)
}

// populated reports whether a process is in a cgroup.
func populated(dir string) bool {
	procs, err := os.ReadFile(filepath.Join(dir, procsFile))
	return err == nil && len(procs) > 0
}

// evacuate moves the processes in a cgroup home.
func (p place) evacuate(dir string) error {
	procs, err := os.ReadFile(filepath.Join(dir, procsFile))
	if err != nil && !gone(err) {
		return fmt.Errorf("leave cgroup: %w", err)
	}
	for field := range strings.FieldsSeq(string(procs)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return fmt.Errorf("leave cgroup %s: %w", dir, err)
		}
		if err := p.goHome(pid); err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
			return fmt.Errorf("leave cgroup %s: %w", dir, err)
		}
	}
	return nil
}

// goHome moves a process to p.home or, if that is gone, to the hierarchy's root.
func (p place) goHome(pid int) error {
	err := move(p.home, procsFile, pid)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		err = move(p.mount, procsFile, pid)
	}
	return err
}

// Remove removes the cgroups, like the function Remove.
func (c *Cgroup) Remove(ctx context.Context) error {
	err := Remove(ctx, c.Dirs())
	for _, p := range c.places {
		if p.overhead != "" {
			err = errors.Join(err, p.weighGroups())
		}
	}
	return err
}

// removeWait bounds how long the kernel may take to remove dead processes from
// the cgroups.
const removeWait = 2 * time.Second

// Remove removes the cgroups of a pod: dirs is Dirs' result. Their processes
// must have ended or left. It is no error if some do not exist.
func Remove(ctx context.Context, dirs []string) error {
	ctx, cancel := context.WithTimeout(ctx, removeWait)
	defer cancel()
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, removeDir(ctx, dir))
	}
	return errors.Join(errs...)
}
