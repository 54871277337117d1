// Package debtest makes Debian packages for this program's tests.
package debtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const control = `Package: linux-image-test
Version: 1
Architecture: amd64
Maintainer: Test <test@example.org>
Description: test
`

// Build returns the path of a package with the given files, by their paths
// in it. It needs dpkg-deb.
func Build(t testing.TB, files map[string][]byte) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	put := func(name string, data []byte) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("DEBIAN/control", []byte(control))
	for name, data := range files {
		put(name, data)
	}
	deb := root + ".deb"
	cmd := exec.CommandContext(t.Context(), "dpkg-deb", "-Zgzip", "--root-owner-group", "--build", root, deb)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build package (Debian package dpkg): %v: %s", err, out)
	}
	return deb
}
