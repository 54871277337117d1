package usernet

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPastaHas(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if pastaHas(hostLoopback) {
		t.Error("none is installed")
	}
	for program, want := range map[string]bool{"\x7fELF\x00no-splice\x00": false, "\x7fELF\x00no-splice\x00host-lo-to-ns-lo\x00": true} {
		if err := os.WriteFile(filepath.Join(dir, Pasta), []byte(program), 0o755); err != nil {
			t.Fatal(err)
		}
		if got := pastaHas(hostLoopback); got != want {
			t.Errorf("%q has %s: %v, want %v", program, hostLoopback, got, want)
		}
	}
}
