package container

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// A mount is held only if it is the one that its path leads to.
func TestHiddenMountIsNotHeld(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b")
	thread, err := newThread(unix.CLONE_NEWNS)
	if err != nil {
		t.Skipf("mounting needs root: %v", err)
	}
	defer thread.close()
	err = thread.do(func() error {
		proc, err := unix.Open("/proc", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(proc)
		if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
			return err
		}
		if err := unix.Mkdir(dir, 0o755); err != nil {
			return err
		}
		for range 2 {
			if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
				return err
			}
		}
		return checkStack(proc, dir)
	})
	if err != nil {
		t.Error(err)
	}
}

// checkStack tries to hold two mounts at one path.
func checkStack(proc int, dir string) error {
	mounts, err := ownMounts(proc)
	if err != nil {
		return err
	}
	var stack []*mountinfo.Info
	for _, m := range mounts {
		if m.Mountpoint == dir {
			stack = append(stack, m)
		}
	}
	if len(stack) != 2 {
		return fmt.Errorf("%d mounts at %s, want 2", len(stack), dir)
	}
	if err := openMount(proc, stack[0]); err == nil || !strings.Contains(err.Error(), "is there, want") {
		return fmt.Errorf("the hidden mount: %w", err)
	}
	return openMount(proc, stack[1])
}
