package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/katabox/katabox/tests/cri/env"
)

// A pod whose engine gives it a cgroup, as the kubelet does, has its own
// counters, and leaves the cgroup empty.
func TestCrictlPodStats(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		parent := e.Daemon.NewID("pods")
		t.Cleanup(func() { removeCgroup(t, parent) })
		p := runpWith(ctx, t, e, "podstats", bed.runtime.Name, fmt.Sprintf(`"cgroup_parent": "/%s"`, parent))
		p.start(ctx, t, []string{"sh", "-c", "while :; do :; done"}, nil)
		var answer struct {
			Stats []struct{ Linux counters }
		}
		if err := json.Unmarshal([]byte(p.do(ctx, t, "statsp", "--output", "json", "--id", p.id)), &answer); err != nil {
			t.Fatal(err)
		}
		if len(answer.Stats) != 1 || !answer.Stats[0].Linux.positive() {
			t.Errorf("statsp: %+v", answer.Stats)
		}
		if err := e.RemovePods(ctx); err != nil {
			t.Error(err)
		}
	})
}

// removeCgroup does what kubelet does when a pod is gone, in every hierarchy; it
// fails when something is left in one.
func removeCgroup(t *testing.T, name string) {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		dirs, err := filepath.Glob(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range dirs {
			// Two names may lead to one hierarchy: cpu and cpuacct.
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("remove the pod's cgroup: %v", err)
			}
		}
	}
}
