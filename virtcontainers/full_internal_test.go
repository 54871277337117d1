package virtcontainers

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A full file system is named as the cause: QEMU dies of SIGBUS there, and says nothing.
func TestExplainFull(t *testing.T) {
	dir, cause := t.TempDir(), errors.New("signal: bus error")
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=32m"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := explainFull(dir, cause); err != cause { //nolint:errorlint // unchanged
		t.Errorf("with room: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "memory"), make([]byte, 31<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	err := explainFull(dir, cause)
	if !errors.Is(err, cause) || !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "factory.template_path") {
		t.Errorf("full: %v", err)
	}
	if explainFull(dir, nil) != nil {
		t.Error("an error without a failure")
	}
}

// A file system that has no size is not full.
func TestExplainUnlimited(t *testing.T) {
	dir, cause := t.TempDir(), errors.New("signal: bus error")
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=0"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := explainFull(dir, cause); err != cause { //nolint:errorlint // unchanged
		t.Errorf("without a size: %v", err)
	}
}
