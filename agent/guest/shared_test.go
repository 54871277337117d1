package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What the kernel gives to a user has no limit. A kernel without one of the limits does
// not keep the others.
func TestSharedLimits(t *testing.T) {
	proc := t.TempDir()
	missing := "user/max_net_namespaces"
	for _, l := range sharedLimits {
		file := filepath.Join(proc, "sys", l.file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if l.file == missing {
			continue
		}
		if err := os.WriteFile(file, []byte("802\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeSharedLimits(proc); err == nil || !strings.Contains(err.Error(), missing) || strings.Count(err.Error(), "\n") > 0 {
		t.Errorf("without one of them: %v", err)
	}
	for file, want := range map[string]string{
		"fs/epoll/max_user_watches": "2147483648", "user/max_mnt_namespaces": "2147483647", "user/max_uts_namespaces": "2147483647",
	} {
		if text, err := os.ReadFile(filepath.Join(proc, "sys", file)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v; want %s", file, text, err, want)
		}
	}
}
