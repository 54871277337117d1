package hostcgroup

import (
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

func set(t *testing.T, list string) resource.CPUSet {
	t.Helper()
	s, err := resource.ParseCPUSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// files reads files below a directory, without the final newline; missing files
// are missing in the result.
func files(t *testing.T, dir string, names ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, name := range names {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			found[name] = strings.TrimSuffix(string(data), "\n")
		}
	}
	return found
}

var placeFiles = []string{"cpuset.cpus", "cpuset.mems", "cpu.shares", "cpu.weight"}

// placed returns what the host's files show of a pod's place.
func (s *scene) placed(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, p := range s.places {
		maps.Copy(all, files(t, p.pod, placeFiles...))
	}
	return all
}

// SetPlace shows in the host's files.
func TestSetPlace(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		s := newScene(t, root, false)
		before := s.placed(t)
		share := map[bool]string{true: "cpu.weight", false: "cpu.shares"}[s.places[0].unified]
		if len(before) != 3 || runtime.NumCPU() < 2 {
			t.Skipf("this version has not all controllers here, or there is one CPU: %v", before)
		}
		weigh := func(n uint64) string {
			if s.places[0].unified {
				n = weight(n)
			}
			return strconv.FormatUint(n, 10)
		}
		for _, tt := range []struct {
			what  string
			place resource.Place
			want  map[string]string
		}{
			{"a set", resource.Place{CPUs: set(t, "1"), Mems: set(t, "0"), Shares: 77}, map[string]string{"cpuset.cpus": "1", "cpuset.mems": "0", share: weigh(77)}},
			{"no set", resource.Place{Shares: 2}, map[string]string{"cpuset.cpus": before["cpuset.cpus"], "cpuset.mems": before["cpuset.mems"], share: weigh(2)}},
		} {
			if err := s.SetPlace(tt.place); err != nil {
				t.Errorf("%s: %v", tt.what, err)
			}
			if diff := cmp.Diff(tt.want, s.placed(t)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.what, diff)
			}
		}
		// The kernel refuses an impossible CPU; the rest is set.
		err := s.SetPlace(resource.Place{CPUs: set(t, "0,8191"), Shares: 99})
		if err == nil || !strings.Contains(err.Error(), `set cpuset.cpus to "0,8191"`) {
			t.Errorf("a CPU that is not there: %v", err)
		}
		if got := s.placed(t)[share]; got != weigh(99) {
			t.Errorf("after a set that was refused %s is %s, want that of 99 shares", share, got)
		}
	})
}

// Plain files stand for the v2 tree of a host whose controllers are all v2's.
func TestSetPlaceInV2(t *testing.T) {
	mount := t.TempDir()
	pod := filepath.Join(mount, "pods/kata_s")
	c := &Cgroup{path: "/pods/kata_s", places: []place{{hierarchy: hierarchy{mount: mount, unified: true}, pod: pod}}}
	if err := os.MkdirAll(pod, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := c.SetPlace(resource.Place{Shares: 5}); err != nil {
		t.Errorf("a host that divides nothing: %v", err)
	}
	err := c.SetPlace(resource.Place{CPUs: set(t, "0"), Shares: 5})
	if !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "no cpuset controller") {
		t.Errorf("a set without controller: %v", err)
	}
	for _, tt := range []struct {
		place resource.Place
		want  map[string]string
	}{
		{resource.Place{CPUs: set(t, "3,0-1"), Shares: 1024}, map[string]string{"cpuset.cpus": "0-1,3", "cpuset.mems": "", "cpu.weight": "100"}},
		{resource.Place{Shares: 256}, map[string]string{"cpuset.cpus": "", "cpuset.mems": "", "cpu.weight": "35"}},
	} {
		for name := range tt.want { // a real file is not appended to
			if err := os.WriteFile(filepath.Join(pod, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.SetPlace(tt.place); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(tt.want, files(t, pod, placeFiles...)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestWeight(t *testing.T) {
	for shares, want := range map[uint64]uint64{0: 1, 2: 1, 3: 2, 102: 17, 256: 35, 1024: 100, 2048: 174, 100000: 4340, 262143: 10000, 262144: 10000, 1 << 60: 10000} {
		if got := weight(shares); got != want {
			t.Errorf("%d shares weigh %d, want %d", shares, got, want)
		}
	}
}
