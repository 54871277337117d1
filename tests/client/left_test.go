package client

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// suiteCgroups lists the cgroups that the suite, its containerds and runc leave
// behind, children first: those around containers of the suite's namespace, and
// that of the test of shims' cgroups.
func suiteCgroups() []string {
	var found []string
	for _, name := range []string{"testing/*", "testing", "testing-*", "containerd/*", "containerd"} {
		for _, root := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup"} {
			dirs, _ := filepath.Glob(filepath.Join(root, name)) // the pattern is right
			found = append(found, slices.DeleteFunc(dirs, func(dir string) bool {
				info, err := os.Lstat(dir)
				return err != nil || !info.IsDir()
			})...)
		}
	}
	return found
}

// removeCgroups removes those that did not exist before. All processes in them
// have ended with the private host.
func removeCgroups(before []string) error {
	deadline := time.Now().Add(20 * time.Second)
	var errs []error
	for _, dir := range suiteCgroups() {
		if slices.Contains(before, dir) {
			continue
		}
		err := os.Remove(dir)
		for err != nil && !errors.Is(err, fs.ErrNotExist) && time.Now().Before(deadline) {
			time.Sleep(50 * time.Millisecond) // the kernel is still removing processes
			err = os.Remove(dir)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// podFiles lists the files of Katabox pods on the private host, and the cgroups
// of the suite's containers.
func podFiles() []string {
	var found []string
	for _, name := range []string{"/run/kata-containers/sandboxes/*", "/sys/fs/cgroup/*/testing/*/", "/sys/fs/cgroup/testing/*/"} {
		paths, _ := filepath.Glob(name) // the pattern is right
		found = append(found, paths...)
	}
	return found
}

// awaitNone waits until nothing is listed any more, and returns what is.
func awaitNone(list func() []string) []string {
	deadline := time.Now().Add(30 * time.Second)
	left := list()
	for len(left) > 0 && time.Now().Before(deadline) {
		time.Sleep(50 * time.Millisecond) // the last shim may still end
		left = list()
	}
	return left
}
