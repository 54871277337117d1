package volume

import (
	"os"
	"path/filepath"
	"testing"
)

// Links are followed as far as /proc and /sys: what is a link there is the guest's.
func TestInGuest(t *testing.T) {
	dir := t.TempDir()
	for name, target := range map[string]string{
		"mtab": "/proc/mounts", "self": "../../../../../../../../proc/self/", "proc": "/proc", "chain": "proc", "fd": "/dev/fd", "sys": "/sys/class",
		"etc": "/etc", "out": "/proc/..", "similar": "/process", "loop": "loop", "here": ".",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"mtab": "/proc/mounts", "here/mtab": "/proc/mounts", "self/fd": "/proc/self/fd", "chain/1/comm": "/proc/1/comm", "chain//net/./dev": "/proc/net/dev",
		"sys/net": "/sys/class/net", "proc/no-such": "/proc/no-such", "proc/../etc": "", "chain/self/../../sys/x": "/sys/x",
		"file": "", "etc/passwd": "", "out": "", "out/etc": "", "similar": "", "loop": "", "missing": "",
	} {
		if got := InGuest(dir + "/" + name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if target, err := os.Readlink("/dev/fd"); err == nil && target == "/proc/self/fd" {
		if got := InGuest(filepath.Join(dir, "fd")); got != target {
			t.Errorf("a link to /dev/fd: %q, want %q", got, target)
		}
	}
}
