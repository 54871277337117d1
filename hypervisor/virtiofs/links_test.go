package virtiofs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// A link of an image is the same node after the guest has changed its owner, for which
// overlayfs makes a copy of it, and its time of modification.
func TestChangedLink(t *testing.T) {
	base := t.TempDir()
	layers := filepath.Join(base, "layers")
	mountAt(t, "tmpfs", layers, "")
	for _, dir := range []string{"lower", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(layers, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("target", filepath.Join(layers, "lower", "link")); err != nil {
		t.Fatal(err)
	}
	merged := filepath.Join(base, "merged")
	mountAt(t, "overlay", merged, "lowerdir="+layers+"/lower,upperdir="+layers+"/upper,workdir="+layers+"/work")
	_, front := serveDir(t, merged, passthrough.Rootfs)
	c := rawClientOf(t, front).begin()
	link := c.mustLookup(1, "link").NodeId
	for _, valid := range []uint32{fuse.FATTR_UID, fuse.FATTR_MTIME, fuse.FATTR_GID} {
		in := &fuse.SetAttrIn{}
		in.Valid, in.Uid, in.Gid, in.Mtime = valid, 1, 1, 1
		ask[fuse.AttrOut](c, wire.Setattr, link, in)
	}
	if n := c.mustLookup(1, "link").NodeId; n != link {
		t.Errorf("the link is node %d, was %d", n, link)
	}
}

// A link that the host has replaced while the guest was saved is another one: the guest's
// kernel still has where the old one led.
func TestLinkReplacedWhileSaved(t *testing.T) {
	share := t.TempDir()
	replaced, same := filepath.Join(share, "replaced"), filepath.Join(share, "same")
	for _, link := range []string{replaced, same} {
		if err := os.Symlink("v1", link); err != nil {
			t.Fatal(err)
		}
	}
	m := newMachine(t, share)
	m.boot()
	old, kept := m.mustLookup(1, "replaced").NodeId, m.mustLookup(1, "same").NodeId
	state := m.mustSave()
	if err := os.Symlink("v2", replaced+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(replaced+".new", replaced); err != nil {
		t.Fatal(err)
	}
	r := restored(t, share, state)
	if errno := r.errno(old); errno != unix.ESTALE {
		t.Errorf("the link that was replaced: %v, want ESTALE", errno)
	}
	if n := r.mustLookup(1, "replaced").NodeId; n == old {
		t.Error("the link that was replaced has the old one's number")
	}
	if n := r.mustLookup(1, "same").NodeId; n != kept {
		t.Errorf("the other link is node %d, was %d", n, kept)
	}
}
