package oci

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/katabox/katabox/shim/oci/monitor"
	"github.com/katabox/katabox/shim/shimtest"
)

func TestMain(m *testing.M) {
	if monitor.IsMonitor() {
		os.Exit(monitor.Main())
	}
	if order := os.Getenv(runEnv); order != "" {
		_ = os.Unsetenv(runEnv) // must not reach the shim, which is this program too
		os.Exit(runMain(order))
	}
	shimtest.Main(m)
}

// newRuntime makes a runtime whose guests are in memory. When the test ends,
// nothing may be left, neither of the pods nor in its root.
func newRuntime(t *testing.T) *Runtime {
	t.Helper()
	program, _ := shimtest.Prepare(t)
	r := &Runtime{Root: filepath.Join(t.TempDir(), "root"), Program: program}
	t.Cleanup(func() {
		if ids, err := r.ids(); err != nil || len(ids) > 0 {
			t.Errorf("containers left: %v, %v", ids, err)
		}
	})
	return r
}
