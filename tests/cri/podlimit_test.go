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
		if !limitCgroup(t, parent, memoryLimit(limitMiB+overheadMiB)) {
			t.Fatal("the host does not limit memory once")
		}
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

// The threads of all containers together are limited as the kubelet limits those of the
// pod (podPidsLimit), also by a limit that changes while they run.
func TestCrictlPodThreads(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		parent := e.Daemon.NewID("threads")
		threads := func(most string) bool { return limitCgroup(t, parent, limit{"pids.max", "pids.max", most}) }
		if !threads("4000") {
			t.Fatal("the host does not limit threads once")
		}
		p := runpWith(ctx, t, e, "threads", bed.runtime.Name, fmt.Sprintf(`"cgroup_parent": "/%s"`, parent))
		const fork = `
			trap 'exit 7' TERM
			until [ -e /go ]; do sleep 0.1; done
			i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i+1)); done
			echo all are there; kill $(jobs -p)`
		few := p.start(ctx, t, []string{"sh", "-c", fork}, nil)
		p.do(ctx, t, "exec", few, "touch", "/go")
		if code := p.awaitState(ctx, t, few, "CONTAINER_EXITED"); code != 0 {
			t.Errorf("60 threads of at most 4000 ended with code %d", code)
		}
		threads("50")
		many := p.start(ctx, t, []string{"sh", "-c", fork}, nil)
		p.do(ctx, t, "exec", many, "touch", "/go")
		if code := p.awaitState(ctx, t, many, "CONTAINER_EXITED"); code != 2 {
			t.Errorf("60 threads of at most 50 ended with code %d, want 2: the shell cannot fork", code)
		}
		if err := e.RemovePods(ctx); err != nil {
			t.Error(err)
		}
	})
}

// The guest has the huge pages that the kubelet allows the pod, whose containers' specs
// say nothing of them: containerd leaves them out by default.
func TestCrictlPodHugepages(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		parent := e.Daemon.NewID("huge")
		if !limitCgroup(t, parent, limit{"hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.max", fmt.Sprint(64 << 20)}) {
			t.Skip("the host's cgroups do not limit huge pages")
		}
		p := runpWith(ctx, t, e, "huge", bed.runtime.Name, fmt.Sprintf(`"cgroup_parent": "/%s"`, parent))
		id := p.start(ctx, t, []string{"sleep", "1000"}, nil)
		if got, want := p.do(ctx, t, "exec", id, "sh", "-c", "grep HugePages_Total /proc/meminfo | tr -s ' '"), "HugePages_Total: 32"; got != want {
			t.Errorf("the guest has %q, want %q", got, want)
		}
		if err := e.RemovePods(ctx); err != nil {
			t.Error(err)
		}
	})
}

// A limit of cgroups: the names of its file with v1 and v2, and its value.
type limit struct{ v1, v2, value string }

func memoryLimit(mib int) limit {
	return limit{"memory.limit_in_bytes", "memory.max", fmt.Sprint(mib << 20)}
}

// limitCgroup makes a cgroup in every hierarchy, as the kubelet does for a pod, with
// limits, and removes it at the end. It reports whether the host has all of those.
func limitCgroup(t *testing.T, name string, limits ...limit) bool {
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
		for _, l := range limits {
			for _, file := range []string{l.v1, l.v2} {
				path := filepath.Join(dir, file)
				if _, err := os.Stat(path); err != nil {
					continue
				}
				if err := os.WriteFile(path, []byte(l.value), 0); err != nil {
					t.Fatal(err)
				}
				limited++
				break // the names may be the same
			}
		}
	}
	return limited == len(limits)
}
