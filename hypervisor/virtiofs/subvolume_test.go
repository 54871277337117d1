package virtiofs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
)

// A subvolume of btrfs has inode numbers that its parent has too. The guest gets it as a
// file system: tar would take files of two subvolumes for one file with two names.
func TestSubvolumes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("to mount needs root")
	}
	dir := t.TempDir()
	mountImage(t, "btrfs", dir)
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
