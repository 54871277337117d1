package pci

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestValidPath(t *testing.T) {
	for path, want := range map[string]bool{
		"01": true, "1f": true, "01/1e": true, strings.Repeat("00/", maxDepth-1) + "00": true,
		"": false, "1": false, "20": false, "1E": false, "/01": false, "01/": false, "01//02": false, "01/../02": false,
		strings.Repeat("00/", maxDepth) + "00": false,
	} {
		if got := ValidPath(path); got != want {
			t.Errorf("%q: %v, want %v", path, got, want)
		}
	}
}

func TestDevice(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{
		"0000:00:1f.0", "0000:00:1f.2", "0000:00:01.0/0000:07:1e.0", "0000:00:01.0/0000:00:01.0:pcie001",
		"0000:00:01.0/0000:07:1d.1", "pci_bus/0000:00",
	} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"1f": "0000:00:1f.0", "01": "0000:00:01.0", "01/1e": "0000:00:01.0/0000:07:1e.0",
	} {
		if dir, err := Device(root, path); err != nil || dir != filepath.Join(root, want) {
			t.Errorf("%s: %s, %v, want %s", path, dir, err, want)
		}
	}
	for path, want := range map[string]string{
		"02":    "no device in slot 02",
		"01/1d": "no device in slot 1d behind 0000:00:01.0", // Its function is not 0.
		"1f/00": "no device in slot 00 behind 0000:00:1f.0",
	} {
		if dir, err := Device(root, path); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v, want %q", path, dir, err, want)
		}
	}
	if _, err := Device(filepath.Join(root, "no", "pci"), "01"); !errdefs.IsNotFound(err) {
		t.Errorf("a machine without PCI: %v", err)
	}
}
