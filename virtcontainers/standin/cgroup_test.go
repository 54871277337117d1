package standin_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
	"github.com/katabox/katabox/virtcontainers/standin"
)

// newCgroup plans a cgroup for the test, and checks that none is left.
func newCgroup(t *testing.T) *hostcgroup.Container {
	t.Helper()
	cgroup, err := hostcgroup.NewContainer("", fmt.Sprintf("/kbtest-standin-%d-%d/c1", os.Getpid(), time.Now().UnixNano()))
	if err == nil {
		err = cgroup.Make()
	}
	if err == nil {
		err = cgroup.Remove(t.Context())
	}
	if err != nil {
		t.Skipf("cgroups cannot be made here: %v", err)
	}
	t.Cleanup(func() {
		if _, err := os.Stat(filepath.Dir(cgroup.Dir())); err == nil {
			t.Errorf("%s is left", filepath.Dir(cgroup.Dir()))
		}
	})
	return cgroup
}

func limits(bytes int64) *specs.LinuxResources {
	return &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &bytes}}
}

// wantInside checks the process's cgroup and its limit.
func wantInside(t *testing.T, p *standin.Process, cgroup *hostcgroup.Container, limit int64) {
	t.Helper()
	procs, err := os.ReadFile(filepath.Join(cgroup.Dir(), "cgroup.procs"))
	if err != nil || strings.TrimSpace(string(procs)) != fmt.Sprint(p.PID()) {
		t.Errorf("in the cgroup: %q, %v; want %d", procs, err, p.PID())
	}
	for _, name := range []string{"memory.limit_in_bytes", "memory.max"} {
		if data, err := os.ReadFile(filepath.Join(cgroup.Dir(), name)); err == nil {
			if got := strings.TrimSpace(string(data)); got != fmt.Sprint(limit) {
				t.Errorf("%s is %s, want %d", name, got, limit)
			}
			return
		}
	}
	t.Error("the cgroup has no memory limit")
}

func TestCgroup(t *testing.T) {
	cgroup := newCgroup(t)
	p := start(t, newHost(t), standin.Options{Args: []string{"x"}})
	if err := p.Limit(limits(1 << 30)); err != nil {
		t.Errorf("a limit without a cgroup: %v", err)
	}
	if err := p.Join(cgroup, limits(32<<20)); err != nil {
		t.Fatal(err)
	}
	wantInside(t, p, cgroup, 32<<20)
	for _, update := range []*specs.LinuxResources{nil, {}, limits(64 << 20)} {
		if err := p.Limit(update); err != nil {
			t.Error(err)
		}
	}
	wantInside(t, p, cgroup, 64<<20)
	for range 2 {
		if err := p.End(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(cgroup.Dir()); err == nil {
			t.Errorf("%s is left", cgroup.Dir())
		}
	}
	if err := p.Limit(limits(1 << 30)); err != nil {
		t.Errorf("a limit after the end: %v", err)
	}
}
