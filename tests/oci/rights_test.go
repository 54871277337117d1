package oci

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// wantNoRights fails the test if a thread of a process has a capability or could
// gain one.
func wantNoRights(t *testing.T, pid int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task/*/status"))
	if err != nil || len(files) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	want := map[string]string{"NoNewPrivs": "1"}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		want[set] = "0000000000000000"
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
			if want[name] != "" && value != want[name] {
				t.Errorf("%s: %s is %s, want %s", file, name, value, want[name])
			}
		}
	}
}
