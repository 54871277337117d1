package hostcgroup

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
)

// makeExisting makes a cgroup in the hierarchies at root that keep selects,
// until the test's end, and returns its path.
func makeExisting(t *testing.T, root string, keep func(hierarchy) bool) string {
	t.Helper()
	found, err := hierarchies(root)
	if err != nil {
		t.Fatal(err)
	}
	path := parentName(t)
	for _, h := range found {
		if !keep(h) {
			continue
		}
		t.Cleanup(func() {
			if err := removeDir(context.Background(), h.dir(path)); err != nil {
				t.Error(err)
			}
		})
		if err := h.makeBelow(h.dir(path), false); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// enter moves this process into a cgroup, until the test's end.
func enter(t *testing.T, root, path string) *Existing {
	t.Helper()
	e, err := OpenExisting(root, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Leave(); err != nil {
			t.Error(err)
		}
	})
	if err := e.Enter(); err != nil {
		t.Fatal(err)
	}
	return e
}

// This process and its helpers are in the engine's cgroup, in hierarchies that
// have it, and the VM is where it would be without one.
func TestExisting(t *testing.T) {
	keeps := map[string]func(hierarchy) bool{
		"in all": func(hierarchy) bool { return true }, "in one": hierarchy.limitsMemory,
	}
	eachVersion(t, func(t *testing.T, root string) {
		for name, keep := range keeps {
			t.Run(name, func(t *testing.T) { testExisting(t, root, keep, false) })
			t.Run(name+", and the pod's only", func(t *testing.T) { testExisting(t, root, keep, true) })
		}
	})
}

func testExisting(t *testing.T, root string, keep func(hierarchy) bool, only bool) {
	path := makeExisting(t, root, keep)
	before, err := cgroupsOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	shim := enter(t, root, path)
	s := openScene(t, Options{Root: root, Only: only, Shim: shim})
	early, vm := sleeper(t), sleeper(t)
	if err := s.Add(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.addVM(t, VM{PID: vm, Memory: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(early); err != nil {
		t.Fatal(err)
	}
	rest, charged := s.want("overhead"), s.want("overhead", "memory")
	if only {
		rest, charged = s.want("pod"), s.want("pod")
	}
	for i, name := range s.names() {
		if h := s.places[i].hierarchy; keep(h) {
			rest[name] = "elsewhere: " + h.dir(path)
		}
	}
	s.check(t, "this process", os.Getpid(), rest)
	s.check(t, "a process that it starts", early, rest)
	s.check(t, "a later one", sleeper(t), rest)
	s.check(t, "VM", vm, charged)
	if err := errors.Join(shim.Leave(), s.Release()); err != nil {
		t.Fatal(err)
	}
	after, err := cgroupsOf(os.Getpid())
	if diff := cmp.Diff(string(before), string(after)); diff != "" || err != nil {
		t.Errorf("this process, before and after: %s %v", diff, err)
	}
}

func TestExistingErrors(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		if _, err := OpenExisting(root, parentName(t)); !errdefs.IsNotFound(err) {
			t.Errorf("one that is not there: %v", err)
		}
		for _, path := range []string{"", "relative", "/a/../b", "/a/", "//a"} {
			if _, err := OpenExisting(root, path); !errdefs.IsInvalidArgument(err) {
				t.Errorf("%q: %v", path, err)
			}
		}
	})
	if _, err := OpenExisting(t.TempDir(), "/a"); !errdefs.IsNotFound(err) {
		t.Errorf("without cgroups: %v", err)
	}
}

// What starts in a cgroup is charged there for huge pages with v2, and with v1 if the
// hierarchy that counts them has it.
func TestCountsHugepages(t *testing.T) {
	in := func(h hierarchy) *Existing { return &Existing{places: []existingPlace{{hierarchy: h}}} }
	for name, test := range map[string]struct {
		e    *Existing
		want bool
	}{
		"none":             {nil, false},
		"v2":               {in(hierarchy{unified: true}), true},
		"v1":               {in(hierarchy{controllers: []string{"hugetlb"}}), true},
		"v1, another part": {in(hierarchy{controllers: []string{"memory"}}), false},
	} {
		if got := test.e.CountsHugepages(); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
