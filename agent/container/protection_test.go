package container

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// newProtection makes a parent of cgroups, with what each protects in memory.low.
func newProtection(t *testing.T, low map[string]string) *protection {
	t.Helper()
	p := &protection{dir: t.TempDir()}
	for _, id := range []string{".", "a", "b", "c"} {
		value, known := low[id]
		if !known {
			value = "0"
		}
		dir := filepath.Join(p.dir, id)
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "memory.min"), []byte("4096\n"), 0o600),
			os.WriteFile(filepath.Join(dir, "memory.low"), []byte(value+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *protection) low(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "memory.low"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The parent protects what the containers do together, and no more.
func TestProtectionIsTheSum(t *testing.T) {
	for name, test := range map[string]struct {
		low  map[string]string
		want string
	}{
		"none":         {nil, "0"},
		"two":          {map[string]string{"a": "8192", "c": "4096"}, "12288"},
		"all memory":   {map[string]string{"a": "8192", "b": "max"}, "max"},
		"more than it": {map[string]string{"a": "max", "b": "max"}, "max"},
	} {
		p := newProtection(t, test.low)
		if err := os.Remove(filepath.Join(p.dir, "b/memory.min")); err != nil {
			t.Fatal(err)
		}
		if err := p.fit(); err != nil || p.low(t) != test.want {
			t.Errorf("%s: %q, %v; want %q", name, p.low(t), err, test.want)
		}
		if text, err := os.ReadFile(filepath.Join(p.dir, "memory.min")); err != nil || string(text) != "8192" {
			t.Errorf("%s: memory.min is %q, %v; want 8192, of those that are not removed", name, text, err)
		}
	}
	if err := newProtection(t, map[string]string{"a": "much"}).fit(); err == nil {
		t.Error("nonsense was read")
	}
}

// The parent's protection follows the updates of a container's.
func TestProtectionFollowsUpdates(t *testing.T) {
	init, err := openInit(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = init.close(passBarriers) }()
	p := newProtection(t, map[string]string{"b": "4096"})
	cgroup := &recordedCgroup{dir: filepath.Join(p.dir, "a")}
	c := &Container{id: "a", init: init, cgroups: cgroup, resources: &cgroups.Resources{}, protection: p}
	for _, step := range []struct{ reservation, want string }{{"8192", "12288"}, {"4096", "8192"}} {
		cgroup.onSet = func() {
			if err := os.WriteFile(filepath.Join(cgroup.dir, "memory.low"), []byte(step.reservation), 0o600); err != nil {
				t.Error(err)
			}
		}
		reservation, err := strconv.ParseInt(step.reservation, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Update(t.Context(), &specs.LinuxResources{Memory: &specs.LinuxMemory{Reservation: &reservation}}); err != nil {
			t.Fatal(err)
		}
		if got := p.low(t); got != step.want {
			t.Errorf("with %s the parent protects %q, want %s", step.reservation, got, step.want)
		}
	}
}

func TestProtects(t *testing.T) {
	for name, test := range map[string]struct {
		limits cgroups.Resources
		want   bool
	}{
		"none":        {cgroups.Resources{Memory: 5}, false},
		"reservation": {cgroups.Resources{MemoryReservation: 5}, true},
		"memory.min":  {cgroups.Resources{Unified: map[string]string{"memory.min": "5"}}, true},
		"memory.low":  {cgroups.Resources{Unified: map[string]string{"memory.low": "5"}}, true},
		"another":     {cgroups.Resources{Unified: map[string]string{"memory.high": "5"}}, false},
	} {
		if got := protects(&test.limits); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
