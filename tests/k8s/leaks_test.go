package k8s

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/katabox/katabox/tests/engines/host"
)

// nothingLeft waits until nothing of any pod is left on the node: shims, machines,
// their records, cgroups.
func nothingLeft(ctx context.Context) error {
	return errors.Join(host.PodsGone(ctx), host.UntilNone(ctx, podCgroups))
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
