package oci

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// An engine whose cgroup manager is systemd names a slice. The pod's cgroups are
// made in it, and are gone with the container.
func TestSystemdCgroup(t *testing.T) {
	r := newRuntime(t, suite.kata)
	const id, slice = "kbslice-c1", "kbtest-oci.slice"
	dir := r.bundle("sleep 1000", func(s *specs.Spec) { s.Linux.CgroupsPath = slice + ":libpod:" + id })
	if res := r.call("--systemd-cgroup", "create", "--bundle", dir, id); res.code != 0 {
		t.Fatalf("create: %+v", res)
	}
	if res := r.call("--systemd-cgroup", "start", id); res.code != 0 {
		t.Errorf("start: %+v", res)
	}
	made := cgroupsIn(t, "kbtest.slice/"+slice)
	if !slices.ContainsFunc(made, func(name string) bool { return strings.HasPrefix(name, "kata_") }) {
		t.Errorf("the slice has the cgroups %v", made)
	}
	if res := r.call("--systemd-cgroup", "delete", "--force", id); res.code != 0 {
		t.Errorf("delete: %+v", res)
	}
	if left := cgroupsIn(t, "kbtest.slice"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// cgroupsIn returns the names of the cgroups in one, in all hierarchies.
func cgroupsIn(t *testing.T, parent string) []string {
	t.Helper()
	var names []string
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		found, err := filepath.Glob(filepath.Join(root, parent, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				names = append(names, filepath.Base(path))
			}
		}
	}
	return names
}
