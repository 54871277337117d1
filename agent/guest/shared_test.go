package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What the kernel gives to a user has no limit. A kernel without one of the limits, and
// one that stays, do not keep the others.
func TestSharedLimits(t *testing.T) {
	const missing, stays = "user/max_time_namespaces", "user/max_net_namespaces"
	proc := t.TempDir()
	for name := range sharedLimits {
		file := filepath.Join(proc, "sys", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		var err error
		switch name {
		case missing:
		case stays:
			err = os.Mkdir(file, 0o700)
		default:
			err = os.WriteFile(file, []byte("802\n"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := removeSharedLimits(proc); err == nil || !strings.Contains(err.Error(), stays) || strings.Contains(err.Error(), missing) {
		t.Errorf("without %s and with a limit that stays: %v", missing, err)
	}
	for file, want := range map[string]string{
		"fs/epoll/max_user_watches": "2147483648", "user/max_mnt_namespaces": "2147483647", "user/max_uts_namespaces": "2147483647",
	} {
		if text, err := os.ReadFile(filepath.Join(proc, "sys", file)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v; want %s", file, text, err, want)
		}
	}
}

// A limit that the kernel's command line sets is the operator's.
func TestSharedLimitsOfTheCommandLine(t *testing.T) {
	const file = "fs/inotify/max_user_watches"
	f := newMachine(t)
	for name := range sharedLimits {
		f.write(t, filepath.Join(f.proc, "sys", name), "9000")
	}
	f.write(t, f.proc+"/cmdline", "quiet sysctl.fs.inotify.max_user_watches=9000\n")
	must(t, removeSharedLimits(f.proc))
	for name, want := range map[string]string{file: "9000", "fs/fanotify/max_user_marks": "1048576"} {
		if text, err := os.ReadFile(filepath.Join(f.proc, "sys", name)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v; want %s", name, text, err, want)
		}
	}
}
