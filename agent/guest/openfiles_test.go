package guest

import (
	"os"
	"path/filepath"
	"testing"
)

// A process may have as many open files as the kernel can give.
func TestOpenFiles(t *testing.T) {
	proc := t.TempDir()
	dir := filepath.Join(proc, "sys/fs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"nr_open": "2147483584", "file-max": "9223372036854775807"}
	for name := range want {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("1048576\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := allowOpenFiles(proc); err != nil {
		t.Fatal(err)
	}
	for name, limit := range want {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != limit {
			t.Errorf("%s: %q, %v; want %s", name, text, err, limit)
		}
	}
}
