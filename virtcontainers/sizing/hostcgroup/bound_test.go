package hostcgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

var boundFiles = []string{"memory.limit_in_bytes", "memory.max", "pids.max"}

// Each cgroup of a pod is bounded: the VM's, wherever it is, and its helpers'.
func TestSetBound(t *testing.T) {
	want := map[string]string{
		"memory.limit_in_bytes": strconv.Itoa(128 << 20), "memory.max": strconv.Itoa(128 << 20), "pids.max": "77",
	}
	for _, only := range []bool{false, true} {
		eachVersion(t, func(t *testing.T, root string) {
			s := newScene(t, root, only)
			if err := s.SetBound(Bound{Memory: 64 << 20, Processes: 77}); err != nil {
				t.Fatal(err)
			}
			if err := s.SetBound(Bound{Memory: 128 << 20}); err != nil {
				t.Fatal(err)
			}
			found := 0
			for _, p := range s.places {
				for _, dir := range p.dirs() {
					got := files(t, dir, boundFiles...)
					found += len(got)
					for name, value := range got {
						if value != want[name] {
							t.Errorf("%s of %s is %s, want %s", name, dir, value, want[name])
						}
					}
				}
			}
			if found == 0 {
				t.Skip("this version has no controller here")
			}
		})
	}
}

// A bound of the pod's cgroup does not count as a limit that leaves no room for
// the VM.
func TestBoundIsNoLimitAbove(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		s := newScene(t, root, false)
		if err := s.SetBound(Bound{Memory: 64 << 20}); err != nil {
			t.Fatal(err)
		}
		if short, err := s.addVM(t, VM{PID: sleeper(t), Memory: 128 << 20}); short != (Short{}) || err != nil {
			t.Errorf("the VM is short of %v, %v", short, err)
		}
	})
}

// A pod's overhead has the pod's weight.
func TestOverheadHasThePodsWeight(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		s := newScene(t, root, false)
		if err := s.SetPlace(resource.Place{Shares: 77}); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, p := range s.places {
			if p.pod == "" {
				continue
			}
			want := files(t, p.pod, "cpu.shares", "cpu.weight")
			if diff := cmp.Diff(want, files(t, p.overhead, "cpu.shares", "cpu.weight")); diff != "" {
				t.Errorf("%s: pod and overhead: %s", p.mount, diff)
			}
			found = found || len(want) > 0
		}
		if !found {
			t.Skip("this version has no CPU controller here")
		}
	})
}

// Plain directories stand for the overhead cgroups of several pods.
func TestOverheadsWeighTogether(t *testing.T) {
	for _, tt := range []struct {
		unified bool
		file    string
	}{{false, "cpu.shares"}, {true, "cpu.weight"}} {
		mount := t.TempDir()
		h := hierarchy{mount: mount, unified: tt.unified}
		all := filepath.Join(mount, "all")
		put := func(dir, value string) {
			t.Helper()
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, tt.file), []byte(value), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		weighs := func(want string) {
			t.Helper()
			if err := h.weighAll(all); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(filepath.Join(all, tt.file), int64(len(want))); err != nil { // as a real file does on a write
				t.Fatal(err)
			}
			if got := files(t, all, tt.file)[tt.file]; got != want {
				t.Errorf("unified %v: all weigh %s, want %s", tt.unified, got, want)
			}
		}
		put(all, "1024\n")
		put(filepath.Join(all, "one"), "2\n")
		put(filepath.Join(all, "two"), "30\n")
		if err := os.Mkdir(filepath.Join(all, "new"), 0o755); err != nil { // its files do not exist yet
			t.Fatal(err)
		}
		weighs("1024") // another's: it has no mark
		if err := unix.Setxattr(all, markName, []byte("1"), 0); err != nil {
			t.Skipf("no extended attributes here: %v", err)
		}
		weighs("32")
		put(filepath.Join(all, "three"), "300000\n")
		weighs(strconv.FormatUint(h.mostTogether(), 10))
		put(filepath.Join(all, "two"), "zero\n")
		if err := h.weighAll(all); err == nil {
			t.Error("a weight that cannot be read is taken")
		}
	}
}
