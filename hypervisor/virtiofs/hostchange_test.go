package virtiofs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// replace removes a file of the host's and makes it anew, as an engine's cp does.
// The old one is kept open: a new one must not get its inode number.
func replace(t *testing.T, path, text string) {
	t.Helper()
	old, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = old.Close() })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A node whose descriptor is still open does not give the content of a file that
// the host has replaced.
func TestOpenOfWhatWasReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, dir)
	old := c.mustLookup(1, "f").NodeId
	first := c.open(old, unix.O_RDONLY)
	if errno, _ := call(c, wire.Release, old, &fuse.ReleaseIn{Fh: first.Fh}); errno != 0 {
		t.Fatal(errno)
	}
	replace(t, path, "new")
	if errno, _ := call(c, wire.Open, old, &fuse.OpenIn{Flags: unix.O_RDONLY}); errno != unix.ESTALE {
		t.Errorf("open of what was replaced: %v, want ESTALE", errno)
	}
	now := c.open(c.mustLookup(1, "f").NodeId, unix.O_RDONLY)
	if got := c.read(now.Fh, 0, 100); got != "new" {
		t.Errorf("read %q", got)
	}
}

// envHost is the directory as the host sees it.
const envHost = "KATABOX_TEST_HOST_DIR"

// A guest sees the host's changes of its root file system after a second, and
// opens nothing that was replaced.
func TestHostChangesRootfs(t *testing.T) {
	dir := t.TempDir()
	inMount(t, "TestHostChangesRootfsInside", mountDir(t, dir, serving{policy: passthrough.Rootfs}), envHost+"="+dir)
}

// TestHostChangesRootfsInside is what TestHostChangesRootfs runs.
func TestHostChangesRootfsInside(t *testing.T) {
	dir, host := inside(t), os.Getenv(envHost)
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(host, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	list := func() (names string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names += e.Name() + " "
		}
		return names
	}
	await := func(what string, done func() bool) {
		for end := time.Now().Add(5 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("after 5 s the guest does not see %s", what)
				return
			}
		}
	}
	write("replaced", "old")
	write("rewritten", "old")
	if _, err := os.Stat(filepath.Join(dir, "go")); !os.IsNotExist(err) {
		t.Errorf("stat of what does not exist: %v", err)
	}
	if got := read("replaced") + read("rewritten") + list(); got != "oldoldreplaced rewritten " {
		t.Errorf("before the changes: %q", got)
	}
	time.Sleep(20 * time.Millisecond) // so that the times of modification differ
	replace(t, filepath.Join(host, "replaced"), "new")
	if got := read("replaced"); got != "new" {
		t.Errorf("a file that was replaced has at once %q", got)
	}
	write("rewritten", "new")
	write("go", "")
	await("a new file", func() bool { _, err := os.Stat(filepath.Join(dir, "go")); return err == nil })
	await("a file's new content", func() bool { return read("rewritten") == "new" })
	await("a new name in a directory", func() bool { return list() == "go replaced rewritten " })
}

// What the guest has open can be inspected and changed after the host has
// renamed, deleted or replaced it, as log rotation does.
func TestOpenFileWithoutItsName(t *testing.T) {
	for what, change := range map[string]func(path string) error{
		"renamed":  func(path string) error { return os.Rename(path, path+".1") },
		"deleted":  os.Remove,
		"replaced": func(path string) error { _ = os.Rename(path, path+".1"); return os.WriteFile(path, nil, 0o600) },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			c := newClient(t, dir)
			f := c.create(1, "log", unix.O_RDWR, 0o600)
			d := ask[fuse.EntryOut](c, wire.Mkdir, 1, &fuse.MkdirIn{Mode: 0o700}, name("d"))
			ask[fuse.OpenOut](c, wire.Opendir, d.NodeId, &fuse.OpenIn{})
			c.write(f.Fh, 0, "0123456789")
			if err := change(filepath.Join(dir, "log")); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(dir, "d"), filepath.Join(dir, "e")); err != nil {
				t.Fatal(err)
			}
			if attr := ask[fuse.AttrOut](c, wire.Getattr, f.NodeId, &fuse.GetAttrIn{}); attr.Ino != f.Ino || attr.Size != 10 {
				t.Errorf("fstat: file %d of %d bytes, want %d of 10", attr.Ino, attr.Size, f.Ino)
			}
			ask[fuse.AttrOut](c, wire.Getattr, d.NodeId, &fuse.GetAttrIn{})
			set := &fuse.SetAttrIn{}
			set.Valid, set.Size, set.Fh, set.Mode = fuse.FATTR_SIZE|fuse.FATTR_FH|fuse.FATTR_MODE, 3, f.Fh, 0o640
			if attr := ask[fuse.AttrOut](c, wire.Setattr, f.NodeId, set); attr.Size != 3 || attr.Mode&0o777 != 0o640 {
				t.Errorf("after ftruncate and fchmod: %d bytes, mode %o", attr.Size, attr.Mode)
			}
			if got := c.read(f.Fh, 0, 100); got != "012" {
				t.Errorf("read %q", got)
			}
			if errno, _ := call(c, wire.Open, f.NodeId, &fuse.OpenIn{}); errno != unix.ESTALE {
				t.Errorf("open by the name that is gone: %v, want ESTALE", errno)
			}
			ask[struct{}](c, wire.Release, f.NodeId, &fuse.ReleaseIn{Fh: f.Fh})
		})
	}
}
