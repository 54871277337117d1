// Package files has files of a shim that the tests of shims, and of their callers, write
// and read. Tests only.
package files

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/katabox/katabox/virtcontainers/bundle"
)

// Configure has the test's sandboxes use a configuration.
func Configure(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "configuration.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KATA_CONF_FILE", file)
}

// ShimPID returns the process of the shim that serves a bundle.
func ShimPID(t *testing.T, bundleDir string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(bundleDir, bundle.PIDFile))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(data))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}
