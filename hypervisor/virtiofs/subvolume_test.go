package virtiofs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
)

// A subvolume of btrfs has inode numbers that its parent has too. The guest gets it as a
// file system: tar would take files of two subvolumes for one file with two names.
func TestSubvolumes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("to mount needs root")
	}
	dir := t.TempDir()
	mountBtrfs(t, dir)
	for _, words := range [][]string{{"btrfs", "-q", "subvolume", "create", filepath.Join(dir, "sub")}, {"mkdir", filepath.Join(dir, "plain")}} {
		if text, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", words, err, text)
		}
	}
	_, front := serveDir(t, dir, passthrough.Auto)
	c := rawClientOf(t, front).begin()
	for name, want := range map[string]bool{"sub": true, "plain": false} {
		if got := c.mustLookup(1, name).Flags&fuse.ATTR_SUBMOUNT != 0; got != want {
			t.Errorf("%s is a file system: %v, want %v", name, got, want)
		}
	}
}

// mountBtrfs mounts a new btrfs at a directory.
func mountBtrfs(t *testing.T, at string) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 256<<20)); err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{{"mkfs.btrfs", "-q", image}, {"mount", "-t", "btrfs", "-o", "loop", image, at}} {
		if text, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Skipf("needs btrfs: %v: %v %s", words, err, text)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}
