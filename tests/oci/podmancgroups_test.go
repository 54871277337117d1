package oci

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// podmanParent is the cgroup in which Podman puts its pods, containers and
// monitors with the cgroupfs manager. It never removes it.
const podmanParent = "libpod_parent"

// dropPodmanCgroups removes, at the test's end, the cgroups that Podman makes
// and never removes. Those that another Podman on this machine has made stay.
func dropPodmanCgroups(t *testing.T) {
	t.Helper()
	before := podmanCgroups(t)
	t.Cleanup(func() {
		deadline := time.Now().Add(20 * time.Second) // a monitor may still be exiting
		for _, dir := range podmanCgroups(t) {
			if slices.Contains(before, dir) {
				continue
			}
			err := os.Remove(dir)
			for err != nil && !errors.Is(err, fs.ErrNotExist) && time.Now().Before(deadline) {
				time.Sleep(50 * time.Millisecond)
				err = os.Remove(dir)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("left: %v", err)
			}
		}
	})
}

// podmanCgroups lists Podman's cgroups in all hierarchies, children first.
func podmanCgroups(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		tops, err := filepath.Glob(filepath.Join(root, podmanParent))
		if err != nil {
			t.Fatal(err)
		}
		for _, top := range tops {
			err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					found = append(found, path)
				}
				return nil // it may just have been removed
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	slices.Reverse(found)
	return found
}
