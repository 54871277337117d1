package cri

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/katabox/katabox/tests/cri/env"
)

// A pod whose engine limits it, as the kubelet does, has that limit for its containers
// together: in the guest, where they are.
func TestCrictlPodLimit(t *testing.T) {
	const limitMiB, overheadMiB = 128, 512
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		parent := e.Daemon.NewID("limited")
		limitCgroup(t, parent, limitMiB+overheadMiB)
		p := runpWith(ctx, t, e, "limited", bed.runtime.Name,
			fmt.Sprintf(`"cgroup_parent": "/%s", "resources": {"memory_limit_in_bytes": %d}`, parent, limitMiB<<20))
		modest := p.start(ctx, t, []string{"sh", "-c", "dd if=/dev/zero bs=40M count=1 | sleep 1000"}, nil)
		hog := p.start(ctx, t, []string{"tail", "-c", "110m", "/dev/zero"}, nil)
		if code := p.awaitState(ctx, t, hog, "CONTAINER_EXITED"); code != 137 {
			t.Errorf("the one that uses more than is left ended with code %d, want 137", code)
		}
		p.awaitState(ctx, t, modest, "CONTAINER_RUNNING")
		if err := e.RemovePods(ctx); err != nil {
			t.Error(err)
		}
	})
}

// limitCgroup makes a cgroup in every hierarchy, as the kubelet does for a pod, with a
// limit of memory, and removes it at the end.
func limitCgroup(t *testing.T, name string, mib int) {
	t.Helper()
	t.Cleanup(func() { removeCgroup(t, name) })
	roots, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	const unified = "/sys/fs/cgroup/cgroup.procs"
	if _, err := os.Stat(unified); err == nil {
		roots = []string{unified} // what is below are other cgroups
	}
	limited := 0
	for _, procs := range roots {
		dir := filepath.Join(filepath.Dir(procs), name)
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) { // two names of one hierarchy
			t.Fatal(err)
		}
		for _, file := range []string{"memory.limit_in_bytes", "memory.max"} {
			if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, file), fmt.Append(nil, mib<<20), 0); err != nil {
				t.Fatal(err)
			}
			limited++
		}
	}
	if limited != 1 {
		t.Fatalf("%d hierarchies limit memory, want one", limited)
	}
}
