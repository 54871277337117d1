package hostcgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	const most = "9223372036854771712\n" // v1's value for no limit: LONG_MAX in whole pages
	for _, tt := range []struct {
		name    string
		unified bool
		files   map[string]string // by cgroup below the root, or by file
		want    uint64
	}{
		{"v2 without limits", true, map[string]string{"a": "max\n", "a/b": "max\n"}, NoLimit},
		{"v2, the parent's", true, map[string]string{"a": "4096\n", "a/b": "max\n"}, 4096},
		{"v2, the least", true, map[string]string{"a": "8192\n", "a/b": "4096\n"}, 4096},
		{"v2 without controller", true, nil, NoLimit},
		{"v2, throttled below the limit", true, map[string]string{"a": "8192\n", "a/b": "max\n", "a/memory.high": "4096\n", "a/b/memory.high": "max\n"}, 4096},
		{"v2, throttled above the limit", true, map[string]string{"a": "8192\n", "a/memory.high": "9000\n"}, 8192},
		{"v1 without limits", false, map[string]string{"": most, "a": most, "a/b": most}, NoLimit},
		{"v1, the parent's", false, map[string]string{"": most, "a": "4096\n", "a/b": most}, 4096},
	} {
		h := hierarchy{mount: t.TempDir(), unified: tt.unified}
		file := map[bool]string{true: "memory.max", false: "memory.limit_in_bytes"}[tt.unified]
		for name, text := range tt.files {
			if filepath.Ext(name) == "" {
				name = filepath.Join(name, file)
			}
			writeFile(t, h.dir(name), text)
		}
		if got, err := h.memoryLimit(h.dir("a/b")); got != tt.want || err != nil {
			t.Errorf("%s: %d, %v, want %d", tt.name, got, err, tt.want)
		}
	}
	h := hierarchy{mount: t.TempDir(), unified: true}
	writeFile(t, h.dir("a/memory.max"), "lots")
	if _, err := h.memoryLimit(h.dir("a")); err == nil || !strings.Contains(err.Error(), "a/memory.max") {
		t.Errorf("a limit that is not a number: %v", err)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
