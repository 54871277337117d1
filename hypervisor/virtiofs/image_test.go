package virtiofs

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// mountImage mounts a new file system of a kind at a directory, and returns the path of
// the file that it is in.
func mountImage(t *testing.T, kind, at string) (image string) {
	t.Helper()
	image = filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 256<<20)); err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{{"mkfs." + kind, "-q", image}, {"mount", "-t", kind, "-o", "loop", image, at}} {
		if text, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Skipf("needs %s: %v: %v %s", kind, words, err, text)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return image
}

// A single write that must be on the disk when it is answered (RWF_DSYNC, RWF_SYNC): the
// request says so, and the file's own flags do not.
func TestSynchronousWrite(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("to mount needs root")
	}
	dir := t.TempDir()
	image := mountImage(t, "ext4", dir)
	_, front := serveDir(t, dir, passthrough.Never)
	c := rawClientOf(t, front).begin()
	file := c.create(1, "file", unix.O_RDWR, 0o644)
	for text, flags := range map[string]uint32{"written without": 0, "written by dsync": unix.O_DSYNC, "written by sync": unix.O_SYNC} {
		in := &fuse.WriteIn{Fh: file.Fh, Size: uint32(len(text)), Flags: unix.O_RDWR | flags}
		ask[fuse.WriteOut](c, wire.Write, 0, in, []byte(text))
		disk, err := os.ReadFile(image)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := bytes.Contains(disk, []byte(text)), flags != 0; got != want {
			t.Errorf("%q is on the disk: %v, want %v", text, got, want)
		}
	}
}
