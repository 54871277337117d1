package k8s

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/engines/host"
)

// nothingLeft waits until nothing of any pod is left on the node: shims, machines,
// their records, cgroups.
func nothingLeft(ctx context.Context) error {
	return errors.Join(host.PodsGone(ctx), host.UntilNone(ctx, podCgroups), host.UntilNone(ctx, bed.records.overheads))
}

// The leak check sees a pod's cgroup for overhead, which is not below the kubelet's.
func TestLeakCheckSeesOverhead(t *testing.T) {
	on(t, []string{kata}, func(s *stage) {
		pod := s.pod("overhead", countingPod)
		s.ready(pod)
		found, err := bed.records.overheads()
		if err != nil {
			s.Fatal(err)
		}
		id := s.idOf(pod)
		if !slices.ContainsFunc(found, func(line string) bool { return strings.Contains(line, id) }) {
			s.Errorf("cgroups for overhead: %q, want one of sandbox %s", found, id)
		}
	})
}

// podCgroups lists the cgroups of pods: the kubelet's, and those of Katabox
// within.
func podCgroups() ([]string, error) {
	roots, err := filepath.Glob("/sys/fs/cgroup/*" + cgroup())
	if err != nil {
		return nil, err
	}
	var found []string
	for _, root := range append(roots, "/sys/fs/cgroup"+cgroup()) {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "pod") {
				found = append(found, "cgroup "+path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}
