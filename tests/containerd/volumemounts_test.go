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

// mountTmpfs mounts a tmpfs on a directory, until the end of the test.
func mountTmpfs(t *testing.T, dir string, flags uintptr) {
	t.Helper()
	mountVolume(t, dir, "tmpfs", flags, "size=1m")
}

// mountProc makes a directory with a proc file system.
func mountProc(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	mountVolume(t, dir, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

func mountVolume(t *testing.T, dir, kind string, flags uintptr, options string) {
	t.Helper()
	if err := unix.Mount("volume", dir, kind, flags, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}
