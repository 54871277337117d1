package passthrough

import (
	"math"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// By default a guest may have a quarter of the process's descriptors open, at most 32,768
// (docs/compat.md).
func TestDefaultLimit(t *testing.T) {
	for limit, want := range map[uint64]int{400: 100, 4096: 1024, 1 << 17: 1 << 15, 1 << 20: 1 << 15, math.MaxUint64: 1 << 15} {
		if got := limitOf(t, Options{Descriptors: descriptorsOf(limit)}); got != want {
			t.Errorf("with %d descriptors %d files, want %d", limit, got, want)
		}
	}
	var rlimit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &rlimit); err != nil {
		t.Fatal(err)
	}
	if got, want := limitOf(t, Options{}), int(min(rlimit.Cur/4, 1<<15)); got != want {
		t.Errorf("of this process's %d descriptors %d files, want %d", rlimit.Cur, got, want)
	}
}

// limitOf returns how many files a guest may have open.
func limitOf(t *testing.T, o Options) int {
	t.Helper()
	root, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	o.Root, o.Policy = root, func(string) Policy { return Auto }
	fs, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Close(t.Context())
	return fs.handles.limit
}
