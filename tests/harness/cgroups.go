package harness

import (
	"os"
	"path/filepath"
	"strings"
)

// cgroupRoot is where the host's cgroup file systems are: with v1 one below it
// for each hierarchy, otherwise it is one itself.
const cgroupRoot = "/sys/fs/cgroup"

// readCgroups returns the cgroups whose names have the tag: a pod's own, its
// overhead and its containers'. All of them have a parent directly below a
// hierarchy's root.
func readCgroups(root, tag string) (HostState, error) {
	state := HostState{}
	for _, pattern := range []string{"*/*", "*/*/*"} {
		found, err := filepath.Glob(filepath.Join(root, pattern+tag+"*"))
		if err != nil {
			return nil, err
		}
		for _, dir := range found {
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				state.add("cgroup", strings.TrimPrefix(dir, root+"/"))
			}
		}
	}
	return state, nil
}
