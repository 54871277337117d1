package hostcgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// The tests run in the host's own hierarchies, each below its own cgroup.

// roots returns where v1's hierarchies and a v2 one may be on a host.
func roots(t *testing.T) map[string]string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("makes cgroups, which needs root")
	}
	found := map[string]string{}
	for _, root := range []string{DefaultRoot, DefaultRoot + "/unified"} {
		hs, err := hierarchies(root)
		if err != nil {
			continue
		}
		if err := unix.Access(hs[0].mount, unix.W_OK); err != nil {
			t.Skipf("the host's cgroups cannot be written: %v", err)
		}
		found[map[bool]string{true: "v2", false: "v1"}[hs[0].unified]] = root
	}
	if len(found) == 0 {
		t.Skip("the host has no cgroups")
	}
	return found
}

// eachVersion runs a test with every version of cgroups that the host has.
func eachVersion(t *testing.T, run func(t *testing.T, root string)) {
	t.Helper()
	for version, root := range roots(t) {
		t.Run(version, func(t *testing.T) { run(t, root) })
	}
}

// scene is a parent that only this test uses, and a process.
type scene struct {
	*Cgroup
	root, parent string
}

// addVM adds a VM under the limits that the host has now.
func (s *scene) addVM(t *testing.T, vm VM) (Short, error) {
	t.Helper()
	above, err := OpenAbove(s.root, s.parent+"/c1", 0)
	if err != nil {
		t.Fatal(err)
	}
	limits, err := above.Limits()
	if err != nil {
		t.Fatal(err)
	}
	return s.AddVM(vm, limits)
}

// parentName returns a unique cgroup name.
func parentName(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("/kbtest-%d-%d", os.Getpid(), time.Now().UnixNano())
}

func plan(t *testing.T, root, parent, id string, only bool) *Cgroup {
	t.Helper()
	c, err := New(Options{Root: root, Path: parent + "/c1", Name: id, Only: only})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newScene(t *testing.T, root string, only bool) *scene {
	t.Helper()
	return openScene(t, Options{Root: root, Only: only})
}

// openScene makes a scene; opts need no names.
func openScene(t *testing.T, opts Options) *scene {
	t.Helper()
	s := &scene{root: opts.Root, parent: parentName(t)}
	opts.Path, opts.Name = s.parent+"/c1", s.parent[1:]
	var err error
	if s.Cgroup, err = New(opts); err != nil {
		t.Fatal(err)
	}
	if err := s.Make(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Release(), s.Remove(context.Background())); err != nil {
			t.Error(err)
		}
		for _, p := range s.places {
			for _, dir := range []string{p.dir(s.parent), p.pod, p.overhead} {
				if _, err := os.Stat(dir); dir != "" && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s is left: %v", dir, err)
				}
			}
		}
	})
	return s
}

// sleeper starts a process that only sleeps, and ends it with the test, before
// its cgroups are removed.
func sleeper(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// where returns in which of the pod's cgroups a process or thread is, by
// hierarchy.
func (s *scene) where(t *testing.T, id int) map[string]string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", id))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for i, name := range s.names() {
		p := s.places[i]
		switch dir := p.of(data); dir {
		case p.pod:
			found[name] = "pod"
		case p.overhead:
			found[name] = "overhead"
		default:
			found[name] = "elsewhere: " + dir
		}
	}
	return found
}

// names returns the hierarchies' names, in the order of places.
func (s *scene) names() []string {
	var names []string
	for _, p := range s.places {
		if p.unified {
			names = append(names, "v2")
		} else {
			names = append(names, strings.Join(p.controllers, ","))
		}
	}
	return names
}

// want returns where's result if everything is in rest, except in the
// hierarchies with those controllers.
func (s *scene) want(rest string, pod ...string) map[string]string {
	all := map[string]string{}
	for i, name := range s.names() {
		p := s.places[i]
		all[name] = rest
		if p.has(pod...) || p.unified && len(pod) > 0 {
			all[name] = "pod"
		}
	}
	return all
}

func (s *scene) check(t *testing.T, what string, id int, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, s.where(t, id)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestOnly(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		s := newScene(t, root, true)
		daemon, vm := sleeper(t), sleeper(t)
		if err := errors.Join(s.Add(os.Getpid()), s.Add(daemon)); err != nil {
			t.Fatal(err)
		}
		// Its memory does not matter: the operator has left room for it.
		if short, err := s.addVM(t, VM{PID: vm, VCPUs: []int{vm}, Memory: NoLimit}); short != (Short{}) || err != nil {
			t.Errorf("AddVM: short by %v, %v", short, err)
		}
		for what, pid := range map[string]int{"this process": os.Getpid(), "daemon": daemon, "VM": vm} {
			s.check(t, what, pid, s.want("pod"))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := s.Remove(ctx); err == nil || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
			t.Errorf("removing what processes are in: %v", err)
		}
	})
}

func TestOverhead(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		s := newScene(t, root, false)
		if err := s.Add(os.Getpid()); err != nil {
			t.Fatal(err)
		}
		s.check(t, "this process", os.Getpid(), s.want("overhead"))
		vm, vcpu := sleeper(t), startThread(t)
		s.check(t, "a process that it starts", vm, s.want("overhead"))
		short, err := s.addVM(t, VM{PID: vm, VCPUs: []int{vcpu}, Memory: 1 << 20})
		if short != (Short{}) || err != nil {
			t.Fatalf("AddVM: short by %v, %v", short, err)
		}
		s.check(t, "VM", vm, s.want("overhead", "memory"))
		if s.places[0].unified {
			return // v2 threads stay with their process
		}
		s.check(t, "vCPU", vcpu, s.want("overhead", threadControllers...))
		s.check(t, "this process", os.Getpid(), s.want("overhead"))
	})
}

// A stand-in joins the pod's cgroups where its VM is counted, and stays where
// it was in the other hierarchies.
func TestJoin(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		s := newScene(t, root, false)
		vm, vcpu, other := sleeper(t), startThread(t), sleeper(t)
		if _, err := s.addVM(t, VM{PID: vm, VCPUs: []int{vcpu}, Memory: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		before := s.where(t, other)
		if err := joinIn(root, other, vm, nil); err != nil {
			t.Fatal(err)
		}
		s.check(t, "without cgroups", other, before)
		if err := joinIn(root, other, vm, s.Dirs()); err != nil {
			t.Fatal(err)
		}
		s.check(t, "joined", other, s.want("overhead", append([]string{"memory", countsProcesses}, threadControllers...)...))
		if err := joinIn(root, other, 1<<30, s.Dirs()); err == nil {
			t.Error("no error for a VM that is gone")
		}
	})
}

// startThread starts a thread of this process, until the test's end. It is not
// the main thread, whose cgroup is reported as the process's.
func startThread(t *testing.T) int {
	t.Helper()
	ids, end := make(chan int), make(chan struct{})
	var wg sync.WaitGroup
	var run func()
	run = func() {
		runtime.LockOSThread() // it ends with the goroutine
		if unix.Gettid() == os.Getpid() {
			wg.Go(run)
		} else {
			ids <- unix.Gettid()
		}
		<-end
	}
	wg.Go(run)
	t.Cleanup(func() {
		close(end)
		wg.Wait()
	})
	return <-ids
}

// A VM that would exceed the limit above the pod is not charged to the pod.
func TestNoRoomForVM(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		s := newScene(t, root, false)
		const limit = 64 << 20
		limited := false
		for _, p := range s.places {
			for _, name := range []string{"memory.limit_in_bytes", "memory.max"} {
				file := filepath.Join(p.dir(s.parent), name)
				if unix.Access(file, unix.W_OK) != nil {
					continue
				}
				if err := write(file, strconv.Itoa(limit)); err != nil {
					t.Fatal(err)
				}
				limited = true
			}
		}
		if !limited {
			t.Skip("the host's memory controller is in another hierarchy")
		}
		vm := sleeper(t)
		if short, err := s.addVM(t, VM{PID: vm, Memory: limit}); short != (Short{}) || err != nil {
			t.Errorf("a VM that just fits: short by %v, %v", short, err)
		}
		s.check(t, "VM that fits", vm, s.want("overhead", "memory"))
		if short, err := s.addVM(t, VM{PID: vm, Memory: limit + 1}); short != (Short{Memory: limit}) || err != nil {
			t.Errorf("a VM that does not fit: short by %v, %v", short, err)
		}
		s.check(t, "VM that has grown", vm, s.want("overhead"))
	})
}

// The v2 tree of a host with v1's controllers has no memory.max: plain files
// stand for it.
func TestNoRoomForVMInV2(t *testing.T) {
	mount := t.TempDir()
	p := place{hierarchy: hierarchy{mount: mount, unified: true}, pod: mount + "/pods/kata_s", overhead: mount + "/kata_overhead/s"}
	for _, dir := range []string{p.pod, p.overhead} {
		writeFile(t, filepath.Join(dir, procsFile), "")
	}
	writeFile(t, mount+"/pods/memory.max", "4096\n")
	for _, tt := range []struct {
		memory, short uint64
		dir           string
	}{{4096, 0, p.pod}, {4097, 4096, p.overhead}} {
		limits, err := Above{parents: []parent{{p.hierarchy, filepath.Dir(p.pod)}}}.Limits()
		if err != nil {
			t.Fatal(err)
		}
		short, err := p.addVM(nil, VM{PID: 77, VCPUs: []int{78}, Memory: tt.memory}, limits)
		if short != (Short{Memory: tt.short}) || err != nil {
			t.Errorf("%d bytes: short by %v, %v", tt.memory, short, err)
		}
		if got, err := os.ReadFile(filepath.Join(tt.dir, procsFile)); string(got) != "77" || err != nil {
			t.Errorf("%d bytes: %s has %q, %v", tt.memory, tt.dir, got, err)
		}
	}
}

// A VM of huge pages is not charged to a pod whose parent, or one above it, allows it too
// few of them, as the kubelet does for a pod that has requested none. Plain files stand for
// the v2 tree of such a host.
func TestNoHugepagesForVMInV2(t *testing.T) {
	for name, tt := range map[string]struct {
		pageMiB uint64
		files   map[string]string
		short   uint64
	}{
		"no limit":                 {2, map[string]string{"pods/a/hugetlb.2MB.max": "max\n", "pods/a/hugetlb.2MB.rsvd.max": "max\n"}, 0},
		"as many as it needs":      {2, map[string]string{"pods/a/hugetlb.2MB.max": "4194304\n"}, 0},
		"none":                     {2, map[string]string{"pods/a/hugetlb.2MB.max": "0\n"}, 4 << 20},
		"too few to reserve":       {2, map[string]string{"pods/a/hugetlb.2MB.max": "max\n", "pods/a/hugetlb.2MB.rsvd.max": "2097152\n"}, 2 << 20},
		"none further up":          {1024, map[string]string{"pods/hugetlb.1GB.max": "0\n", "pods/a/hugetlb.1GB.max": "max\n"}, 4 << 20},
		"none of another size":     {2, map[string]string{"pods/a/hugetlb.1GB.max": "0\n"}, 0},
		"none for ordinary memory": {0, map[string]string{"pods/a/hugetlb.2MB.max": "0\n"}, 0},
	} {
		mount := t.TempDir()
		p := place{hierarchy: hierarchy{mount: mount, unified: true}, pod: mount + "/pods/a/kata_s", overhead: mount + "/kata_overhead/s"}
		for _, dir := range []string{p.pod, p.overhead} {
			writeFile(t, filepath.Join(dir, procsFile), "")
		}
		for file, text := range tt.files {
			writeFile(t, filepath.Join(mount, file), text)
		}
		limits, err := Above{parents: []parent{{p.hierarchy, filepath.Dir(p.pod)}}, hugePages: hugepageSize(tt.pageMiB)}.Limits()
		if err != nil {
			t.Fatal(err)
		}
		vm := VM{PID: 77, Memory: 4 << 20}
		if tt.pageMiB > 0 {
			vm.Hugepages = 4 << 20
		}
		short, err := p.addVM(nil, vm, limits)
		if short != (Short{Hugepages: tt.short}) || err != nil {
			t.Errorf("%s: short by %+v, %v, want %d", name, short, err, tt.short)
		}
		dir := map[bool]string{false: p.pod, true: p.overhead}[tt.short > 0]
		if got, err := os.ReadFile(filepath.Join(dir, procsFile)); string(got) != "77" || err != nil {
			t.Errorf("%s: %s has %q, %v", name, dir, got, err)
		}
	}
}

// Parents that pods have made are removed with the last pod that uses them,
// whichever made them; all other parents stay.
func TestParents(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		parent := parentName(t)
		first, second := plan(t, root, parent+"/in", parent[1:]+"-1", false), plan(t, root, parent+"/in", parent[1:]+"-2", false)
		for _, c := range []*Cgroup{first, second, first} { // making again is no error
			if err := c.Make(); err != nil {
				t.Fatal(err)
			}
		}
		foreign := first.places[0].dir(parent) + "/in/foreign"
		for i, c := range []*Cgroup{first, second} {
			if err := c.Remove(t.Context()); err != nil {
				t.Error(err)
			}
			_, err := os.Stat(c.places[0].dir(parent))
			if there := err == nil; there != (i == 0) {
				t.Errorf("after pod %d of 2 the parent is there: %v", i+1, there)
			}
		}
		if err := os.MkdirAll(foreign, 0o755); err != nil {
			t.Fatal(err)
		}
		defer func() {
			for _, dir := range []string{foreign, filepath.Dir(foreign), filepath.Dir(filepath.Dir(foreign))} {
				if err := os.Remove(dir); err != nil {
					t.Error(err)
				}
			}
		}()
		if err := errors.Join(first.Make(), first.Remove(t.Context()), first.Remove(t.Context())); err != nil {
			t.Error(err)
		}
		for _, c := range first.places[1:] {
			if _, err := os.Stat(c.dir(parent)); err == nil {
				t.Errorf("%s is left", c.dir(parent))
			}
		}
	})
}

// Pods begin and end concurrently, while parents are made and removed.
func TestParentsAtOnce(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		parent := parentName(t)
		var wg sync.WaitGroup
		for i := range 4 {
			c := plan(t, root, parent, fmt.Sprintf("%s-%d", parent[1:], i), false)
			wg.Go(func() {
				for range 20 {
					if err := c.Make(); err != nil {
						t.Error(err)
					}
					if err := c.Remove(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		c := plan(t, root, parent, "x", false)
		for _, p := range c.places {
			if _, err := os.Stat(p.dir(parent)); err == nil {
				t.Errorf("%s is left", p.dir(parent))
			}
		}
	})
}

// This process's children leave with it.
func TestRelease(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		for _, only := range []bool{false, true} {
			s := newScene(t, root, only)
			before := s.where(t, os.Getpid())
			if err := s.Add(os.Getpid()); err != nil {
				t.Fatal(err)
			}
			logger := sleeper(t)
			if err := errors.Join(s.Release(), s.Remove(t.Context()), s.Release()); err != nil {
				t.Error(err)
			}
			s.check(t, "this process", os.Getpid(), before)
			s.check(t, "its child", logger, before)
		}
	})
}

// Evacuate moves what another process's pod has left to where this process is.
func TestEvacuate(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		for _, only := range []bool{false, true} {
			s := newScene(t, root, only)
			before := s.where(t, os.Getpid())
			logger := sleeper(t)
			if err := errors.Join(s.Make(), s.Add(logger), Evacuate(root, s.Dirs())); err != nil {
				t.Fatal(err)
			}
			s.check(t, "the logger", logger, before)
			if err := errors.Join(Remove(t.Context(), s.Dirs()), Evacuate(root, s.Dirs())); err != nil {
				t.Error(err)
			}
		}
	})
}

// Leave moves this process alone, and a Release after it the others.
func TestLeave(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		for _, only := range []bool{false, true} {
			s := newScene(t, root, only)
			before := s.where(t, os.Getpid())
			if err := errors.Join(s.Leave(), s.Add(os.Getpid())); err != nil { // the first has nothing to do
				t.Fatal(err)
			}
			logger := sleeper(t)
			added := s.where(t, logger)
			if err := errors.Join(s.Leave(), s.Leave()); err != nil {
				t.Error(err)
			}
			s.check(t, "this process", os.Getpid(), before)
			s.check(t, "its child", logger, added)
			if err := errors.Join(s.Release(), s.Remove(t.Context())); err != nil {
				t.Error(err)
			}
			s.check(t, "its child", logger, before)
		}
	})
}

// A process that leaves goes to the root if its previous cgroup is gone.
func TestReleaseWithoutHome(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		s := newScene(t, root, true)
		if _, err := os.Stat(s.places[0].mount + "/cgroup.type"); err == nil {
			t.Skip("the root of this cgroup namespace is none that v2 lets have processes")
		}
		for i := range s.places {
			s.places[i].home += "/gone"
		}
		if err := errors.Join(s.Add(os.Getpid()), s.Release()); err != nil {
			t.Fatal(err)
		}
		for h, where := range s.where(t, os.Getpid()) {
			if !strings.HasPrefix(where, "elsewhere") {
				t.Errorf("in %s this process is still in %s", h, where)
			}
		}
	})
}

func TestAddFails(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		s := newScene(t, root, true)
		const noProcess = 1 << 23 // beyond PID_MAX_LIMIT
		if err := s.Add(noProcess); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("moving no process: %v", err)
		}
		if _, err := s.addVM(t, VM{PID: noProcess}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("moving no machine: %v", err)
		}
	})
}

// Only directories in cgroup file systems are made, and no files in them.
func TestMakeOnAFileSystem(t *testing.T) {
	h := hierarchy{mount: t.TempDir(), controllers: []string{"cpuset"}}
	if err := h.makeDir(h.dir("a/b")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a cpuset without files: %v", err)
	}
	if err := move(h.mount, procsFile, 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a move into no cgroup: %v", err)
	}
}
