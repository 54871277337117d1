package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/tests/harness"
)

// "make uninstall" removes all that "make install" installs, and no other file.
func TestMakeUninstall(t *testing.T) {
	layout, err := harness.FindLayout()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{layout.Shim(), layout.Kernel(), layout.Initrd()} {
		if _, err := os.Stat(name); err != nil {
			t.Skipf("make build guest-image: %v", err)
		}
	}
	root := t.TempDir()
	others := []string{"/usr/local/bin/other", "/usr/share/defaults/kata-containers/config.d/mine.toml"}
	for _, name := range others {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(target string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", target, "DESTDIR="+root)
		cmd.Dir = layout.Root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make %s: %v: %s", target, err, out)
		}
	}
	run("stage") // what install does when all is built
	if installed := filesBelow(t, root); len(installed) != len(others)+9 || !slices.Contains(installed, "/usr/local/bin/containerd-shim-kata-v2") {
		t.Errorf("installed: %s", strings.Join(installed, " "))
	}
	for range 2 { // there is nothing to do the second time
		run("uninstall")
		if diff := cmp.Diff(others, filesBelow(t, root)); diff != "" {
			t.Errorf("after uninstall (-want +got):\n%s", diff)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "usr/share/kata-containers")); !os.IsNotExist(err) {
		t.Errorf("the guest's directory: %v", err)
	}
}

// filesBelow lists the files below a directory by their paths there.
func filesBelow(t *testing.T, root string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, strings.TrimPrefix(path, root))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}
