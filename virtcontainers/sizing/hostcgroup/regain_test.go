package hostcgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

// What systemd turns off above the pod's cgroups at a daemon-reload is turned on
// again, whole branches of it, and what it had can be set again.
func TestRegain(t *testing.T) {
	root, ok := roots(t)["v2"]
	if !ok {
		t.Skip("the host has no v2 tree")
	}
	parent := parentName(t)
	c := plan(t, root, parent+"/slice/pod", parent[1:], false)
	t.Cleanup(func() {
		if err := c.Remove(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if err := c.Make(); err != nil {
		t.Fatal(err)
	}
	p := c.places[0]
	slice := filepath.Dir(p.pod)
	for _, dir := range p.above(p.pod)[1:] {
		enable(dir)
	}
	c.places[0].note()
	had := c.places[0].had[p.pod]
	if !slices.Contains(had, "memory") || !slices.Contains(had, "pids") || !c.CanLose() {
		t.Skipf("this version has not all controllers here: %v", had)
	}
	if got := c.Regain(); len(got) != 0 {
		t.Errorf("regained %v, but nothing was lost", got)
	}
	turnOff := func(dir, name string) {
		if err := write(filepath.Join(dir, subtreeFile), "-"+name); err != nil {
			t.Fatal(err)
		}
	}
	set := func() {
		if err := c.SetBound(Bound{Memory: 64 << 20, Processes: 77}); err != nil {
			t.Fatal(err)
		}
		if err := c.SetPlace(resource.Place{Shares: 512}); err != nil {
			t.Fatal(err)
		}
	}
	set()
	want := files(t, p.pod, "memory.max", "pids.max", "cpu.weight")
	turnOff(slice, "memory")
	turnOff(slice, "pids")
	turnOff(filepath.Dir(slice), "pids")
	if got := files(t, p.pod, "memory.max", "pids.max"); len(got) != 0 {
		t.Fatalf("without controllers the cgroup has %v", got)
	}
	if got := c.Regain(); !slices.Equal(got, []string{"memory", "pids"}) {
		t.Errorf("regained %v", got)
	}
	set()
	if got := files(t, p.pod, "memory.max", "pids.max", "cpu.weight"); len(got) != 3 || got["memory.max"] != want["memory.max"] || got["pids.max"] != "77" {
		t.Errorf("set again: %v, want %v", got, want)
	}
	if got := c.Regain(); len(got) != 0 {
		t.Errorf("regained %v a second time", got)
	}
}

// The kubelet makes a pod's slice anew while it lacks a controller, and with that
// systemd turns off those of the pod's cgroups. What systemd's slices above do not
// pass on is therefore turned on, whole branches of it.
func TestMakeTurnsOnAbove(t *testing.T) {
	root, ok := roots(t)["v2"]
	if !ok {
		t.Skip("the host has no v2 tree")
	}
	parent := parentName(t)
	c := plan(t, root, parent+"/class/slice", parent[1:], false)
	p := c.places[0]
	slice := filepath.Dir(p.pod)
	t.Cleanup(func() {
		err := c.Remove(t.Context())
		for dir := slice; dir != p.mount; dir = filepath.Dir(dir) {
			err = errors.Join(err, os.Remove(dir))
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err := os.MkdirAll(slice, 0o755); err != nil {
		t.Fatal(err)
	}
	given := files(t, p.mount, subtreeFile)[subtreeFile]
	if err := c.Make(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cpuset", "memory", "pids"} {
		if !strings.Contains(given, name) {
			continue
		}
		for _, dir := range []string{slice, p.pod} {
			if now := files(t, dir, controllersFile)[controllersFile]; !strings.Contains(now, name) {
				t.Errorf("%s has %q, not %s", filepath.Base(dir), now, name)
			}
		}
	}
}

// A cgroup that is gone, as at the pod's end, loses nothing.
func TestRegainOfWhatIsGone(t *testing.T) {
	mount := t.TempDir()
	p := place{hierarchy: hierarchy{mount: mount, unified: true}, pod: filepath.Join(mount, "a/kata_s")}
	p.had = map[string][]string{p.pod: {"memory"}}
	writeFile(t, filepath.Join(mount, "a", subtreeFile), "")
	c := &Cgroup{places: []place{p}}
	if got := c.Regain(); len(got) != 0 {
		t.Errorf("regained %v", got)
	}
	if got := files(t, filepath.Join(mount, "a"), subtreeFile); got[subtreeFile] != "" {
		t.Errorf("turned on %v", got)
	}
}
