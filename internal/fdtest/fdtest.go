// Package fdtest finds descriptors that a test has leaked, or closed for another; tests
// only.
package fdtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cpus is opened by the C library at any time, for a moment: malloc counts the CPUs
// before it makes an arena for another thread (glibc, sysdeps/unix/sysv/linux/getsysstats.c).
const cpus = "/sys/devices/system/cpu/online"

// Open returns how many descriptors this process has of each file. Those that have no
// path, such as pipes and sockets, count by their kind.
func Open(t testing.TB) map[string]int {
	t.Helper()
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]int)
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil || target == cpus {
			continue // closed meanwhile, as the directory's own
		}
		kind, _, _ := strings.Cut(target, ":[")
		files[kind]++
	}
	return files
}
