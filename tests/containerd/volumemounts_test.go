package containerd

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// hardenedVolume makes a directory that the host has mounted noexec and nosuid, with
// a script "run".
func hardenedVolume(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	mountTmpfs(t, dir, unix.MS_NOEXEC|unix.MS_NOSUID)
	run := filepath.Join(dir, "run")
	write(t, run, "#!/bin/sh\necho ran\n")
	if err := os.Chmod(run, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// sharedVolume makes a directory in which the host's later mounts propagate, with a
// directory "sub" to mount on.
func sharedVolume(t *testing.T) (dir, sub string) {
	t.Helper()
	dir = t.TempDir()
	mountTmpfs(t, dir, 0)
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	sub = filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, sub
}

func mountTmpfs(t *testing.T, dir string, flags uintptr) {
	t.Helper()
	if err := unix.Mount("volume", dir, "tmpfs", flags, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}
