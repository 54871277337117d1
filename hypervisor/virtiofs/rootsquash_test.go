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

// squashed refuses root's requests, as an NFS server with root_squash does for files and
// directories that not all users may use.
func squashed(r *wire.Request) unix.Errno {
	if r.Header().Uid != 0 {
		return 0
	}
	switch r.Op() {
	case wire.Lookup:
		if r.Node() == 1 {
			return 0
		}
		return unix.EACCES
	case wire.Open, wire.Opendir, wire.Create, wire.Mkdir, wire.Unlink, wire.Rmdir, wire.Rename, wire.Rename2, wire.Link, wire.Symlink:
		return unix.EACCES
	case wire.Setattr, wire.Setxattr:
		return unix.EPERM
	}
	return 0
}

// A server may judge by user and give one that has a directory only by a supplementary
// group no rights: names are given as root.
func TestServerRefusesUsers(t *testing.T) {
	refuse := func(r *wire.Request) unix.Errno {
		switch r.Op() {
		case wire.Link, wire.Rename, wire.Rename2:
			if r.Header().Uid != 0 {
				return unix.EACCES
			}
		}
		return 0
	}
	if os.Getuid() != 0 {
		t.Skip("this test needs root")
	}
	host := t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	share, volume := filepath.Split(mountDir(t, host, serving{refuse: refuse, policy: passthrough.Never}))
	c := newMachine(t, share)
	c.boot()
	top := c.mustLookup(1, volume).NodeId
	file := c.mustLookup(top, "f").NodeId
	c.uid, c.gid = 1000, 1000
	ask[fuse.EntryOut](c.client, wire.Link, top, &fuse.LinkIn{Oldnodeid: file}, name("g"))
	ask[struct{}](c.client, wire.Rename2, top, &fuse.RenameIn{Newdir: top}, name("f"), name("h"))
}

// A user of the guest can use its own files on a server that gives root no rights, and
// root cannot.
func TestServerRefusesRoot(t *testing.T) {
	host := t.TempDir()
	const user = 1000
	if err := os.Chown(host, user, user); err != nil {
		t.Skipf("this test needs root: %v", err)
	}
	// The threads' root is not the mount, which would be busy until the last has ended.
	share, volume := filepath.Split(mountDir(t, host, serving{refuse: squashed, policy: passthrough.Never}))
	c := newMachine(t, share)
	c.boot()
	top := c.mustLookup(1, volume).NodeId
	c.uid, c.gid = user, user
	dir := ask[fuse.EntryOut](c.client, wire.Mkdir, top, &fuse.MkdirIn{Mode: 0o700}, name("d")).NodeId
	f := c.create(dir, "f", unix.O_RDWR, 0o600)
	c.write(f.Fh, 0, "text")
	ask[struct{}](c.client, wire.Release, f.NodeId, &fuse.ReleaseIn{Fh: f.Fh})

	again := c.open(f.NodeId, unix.O_RDONLY)
	if got := c.read(again.Fh, 0, 10); got != "text" {
		t.Errorf("read %q", got)
	}
	set := &fuse.SetAttrIn{}
	set.Valid, set.Mode, set.Size = fuse.FATTR_MODE|fuse.FATTR_SIZE, 0o640, 2
	if attr := ask[fuse.AttrOut](c.client, wire.Setattr, f.NodeId, set); attr.Mode&0o777 != 0o640 || attr.Size != 2 {
		t.Errorf("after chmod and truncate: mode %o, %d bytes", attr.Mode&0o777, attr.Size)
	}
	ask[fuse.EntryOut](c.client, wire.Link, dir, &fuse.LinkIn{Oldnodeid: f.NodeId}, name("g"))
	ask[struct{}](c.client, wire.Rename2, dir, &fuse.RenameIn{Newdir: dir}, name("f"), name("h"))
	ask[struct{}](c.client, wire.Unlink, dir, &fuse.InHeader{}, name("g"))
	if out := c.mustLookup(dir, "h"); out.NodeId != f.NodeId || out.Nlink != 1 {
		t.Errorf("the file is node %d with %d names, want %d and 1", out.NodeId, out.Nlink, f.NodeId)
	}
	open := c.open(f.NodeId, unix.O_RDWR)
	ask[fuse.OpenOut](c.client, wire.Opendir, dir, &fuse.OpenIn{})

	c.uid, c.gid = 0, 0
	if errno, _ := call(c.client, wire.Open, f.NodeId, &fuse.OpenIn{}); errno != unix.EACCES {
		t.Errorf("root opens the user's file: %v, want EACCES", errno)
	}

	// When the machine wakes there is no sender: the files' owners are asked.
	state := c.mustSave()
	woken := newMachine(t, share)
	if err := woken.load(state); err != nil {
		t.Fatal(err)
	}
	woken.resume()
	if got := woken.read(open.Fh, 0, 10); got != "te" {
		t.Errorf("read %q after the load", got)
	}
}
