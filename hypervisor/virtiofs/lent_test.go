package virtiofs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// lentMount is a share with a volume, in which the host has mounted something.
type lentMount struct {
	t   *testing.T
	c   *client
	vol uint64
	at  string // of the mount on the host
}

// newLentMount makes a lentMount in a directory, with nothing mounted at "sub"
// of the volume yet.
func newLentMount(t *testing.T, share string) *lentMount {
	t.Helper()
	m := &lentMount{t: t, at: filepath.Join(share, "vol", "sub")}
	if err := os.Mkdir(filepath.Dir(m.at), 0o755); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, share) // ends after the unmount
	mountTmpfs(t, filepath.Dir(m.at))
	if err := os.Mkdir(m.at, 0o755); err != nil {
		t.Fatal(err)
	}
	m.c, m.vol = c, c.mustLookup(1, "vol").NodeId
	return m
}

// mountTmpfs mounts a tmpfs until the test ends or unmounts it.
func mountTmpfs(t *testing.T, at string) {
	t.Helper()
	if err := unix.Mount("katabox-test", at, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			t.Error(err)
		}
	})
}

// mount mounts a file system in the volume with a file d/f.
func (m *lentMount) mount(text string) {
	m.t.Helper()
	mountTmpfs(m.t, m.at)
	if err := os.Mkdir(filepath.Join(m.at, "d"), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.at, "d", "f"), []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// open returns how many descriptors this process has on the mount.
func (m *lentMount) open() int {
	m.t.Helper()
	var stx unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, m.at, 0, unix.STATX_MNT_ID, &stx); err != nil {
		m.t.Fatal(err)
	}
	return descriptorsOn(m.t, stx.Mnt_id)
}

func descriptorsOn(t *testing.T, mount uint64) (count int) {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		text, err := os.ReadFile(name) // one that was closed meanwhile is missing
		if err == nil && strings.Contains(string(text), fmt.Sprintf("mnt_id:\t%d\n", mount)) {
			count++
		}
	}
	return count
}

// await waits until that many descriptors are left on the mount.
func (m *lentMount) await(count int) {
	m.t.Helper()
	for end := time.Now().Add(30 * time.Second); m.open() != count; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("%d descriptors are open on the mount, want %d", m.open(), count)
		}
	}
}

// unmount unmounts as an administrator does.
func (m *lentMount) unmount() error { return unix.Unmount(m.at, 0) }

// file looks up d/f, component by component.
func (m *lentMount) file() (sub, d, f uint64) {
	m.t.Helper()
	sub = m.c.mustLookup(m.vol, "sub").NodeId
	d = m.c.mustLookup(sub, "d").NodeId
	return sub, d, m.c.mustLookup(d, "f").NodeId
}

func (m *lentMount) getattr(node uint64) unix.Errno {
	m.t.Helper()
	errno, _ := call(m.c, wire.Getattr, node, &fuse.GetAttrIn{})
	return errno
}

// content opens a file, reads it and closes it.
func (m *lentMount) content(node uint64) string {
	m.t.Helper()
	fh := m.c.open(node, unix.O_RDONLY).Fh
	defer m.c.release(fh)
	return m.c.read(fh, 0, 100)
}

// The host may unmount what the guest knows, except what it has open; the guest
// then finds what is beneath, and what is mounted next.
func TestUnmountBelowVolume(t *testing.T) {
	m := newLentMount(t, t.TempDir())
	below := m.c.mustLookup(m.vol, "sub")
	m.mount("first")
	sub, d, f := m.file()
	if sub == below.NodeId {
		t.Error("a mount has the number of the directory below it")
	}
	m.await(0)
	if got := m.content(f); got != "first" {
		t.Errorf("a released file reads %q", got)
	}
	fh := m.c.open(f, unix.O_RDONLY).Fh
	m.await(1)
	if err := m.unmount(); !errors.Is(err, unix.EBUSY) {
		t.Fatalf("unmount with an open file: %v, want EBUSY", err)
	}
	m.c.release(fh)
	m.await(0)
	if err := m.unmount(); err != nil {
		t.Fatal(err)
	}
	for _, node := range []uint64{sub, d, f} {
		if errno := m.getattr(node); errno != unix.ESTALE {
			t.Errorf("attributes of what was unmounted: %v, want ESTALE", errno)
		}
	}
	if got := m.c.mustLookup(m.vol, "sub"); got.NodeId != below.NodeId || got.Flags&fuse.ATTR_SUBMOUNT != 0 {
		t.Errorf("below the mount is node %d, flags %#x; want node %d", got.NodeId, got.Flags, below.NodeId)
	}
	m.mount("second")
	sub2, _, f2 := m.file()
	if sub2 == below.NodeId || m.content(f2) != "second" {
		t.Errorf("the next mount is node %d with %q, the directory below it %d", sub2, m.content(f2), below.NodeId)
	}
}

// An idle guest keeps no descriptor below a volume; the volume itself is kept.
func TestVolumeIsKept(t *testing.T) {
	m := newLentMount(t, t.TempDir())
	m.mount("x")
	m.file()
	m.await(0)
	vol := lentMount{t: t, at: filepath.Dir(m.at)}
	if vol.open() == 0 {
		t.Error("the volume's own descriptors were closed")
	}
}

// Files that lose one of their names, or get one, are released too; one without
// a name is kept until the guest forgets it.
func TestNamesBelowVolume(t *testing.T) {
	m := newLentMount(t, t.TempDir())
	m.mount("linked")
	_, d, f := m.file()
	ask[fuse.EntryOut](m.c, wire.Link, d, &fuse.LinkIn{Oldnodeid: f}, name("g"))
	if errno := m.c.raw(wire.Unlink, d, name("f")); errno != 0 {
		t.Fatal(errno)
	}
	m.await(0)
	if got := m.content(f); got != "linked" {
		t.Errorf("by its other name the file reads %q", got)
	}
	m.c.mustLookup(d, "g")
	if err := os.Link(filepath.Join(m.at, "d", "g"), filepath.Join(m.at, "d", "h")); err != nil {
		t.Fatal(err)
	}
	if errno := m.c.raw(wire.Unlink, d, name("g")); errno != 0 {
		t.Fatal(errno)
	}
	m.await(1)
	if got := m.content(f); got != "linked" {
		t.Errorf("without a known name the file reads %q", got)
	}
	if again := m.c.mustLookup(d, "h"); again.NodeId != f {
		t.Errorf("the file's third name is node %d, want %d", again.NodeId, f)
	}
	m.await(0)
	if err := m.unmount(); err != nil {
		t.Error(err)
	}
}

// While the host mounts, unmounts and places links, a guest that uses known
// nodes gets the file, or an error that it is gone.
func TestUnmountWhileUsed(t *testing.T) {
	cage := newCage(t)
	m := newLentMount(t, cage.share)
	done := make(chan error, 1)
	go func() { done <- churn(m.at, cage.base) }()
	known := map[uint64]bool{}
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
			m.useAll(known)
		}
	}
	cage.check(t)
	m.mount("after")
	if _, _, f := m.file(); m.content(f) != "after" {
		t.Error("what was mounted last is not seen")
	}
}

// churn mounts a file system with a file that says "inside", puts a link in its
// place, and unmounts it, again and again.
func churn(at, outside string) error {
	d := filepath.Join(at, "d")
	for range 20 {
		err := errors.Join(
			unix.Mount("katabox-test", at, "tmpfs", 0, "size=1m"), os.Mkdir(d, 0o755),
			os.WriteFile(filepath.Join(d, "f"), []byte("inside"), 0o644), os.WriteFile(filepath.Join(d, "canary"), []byte("inside"), 0o644),
		)
		time.Sleep(25 * time.Millisecond)
		err = errors.Join(err, os.Rename(d, d+"2"), os.Symlink(outside, d))
		time.Sleep(25 * time.Millisecond)
		if err = errors.Join(err, unix.Unmount(at, unix.MNT_DETACH)); err != nil {
			return err
		}
	}
	return nil
}

// useAll looks up everything that may exist, and uses all nodes that were ever
// known.
func (m *lentMount) useAll(known map[uint64]bool) {
	m.t.Helper()
	for _, path := range [][]string{{"sub", "d", "f"}, {"sub", "d", "canary"}, {"sub", "d2", "f"}} {
		node := m.vol
		for _, n := range path {
			out, errno := m.c.lookup(node, n)
			if errno != 0 || out.NodeId == 0 {
				break
			}
			node = out.NodeId
			known[node] = true
		}
	}
	for node := range known {
		errno, p := call(m.c, wire.Open, node, &fuse.OpenIn{Flags: unix.O_RDONLY})
		switch errno {
		case unix.ESTALE, unix.EACCES: // it is gone, or not a file
			continue
		case 0:
		default:
			m.t.Fatalf("open of a known file: %v", errno)
		}
		var out fuse.OpenOut
		copy(bytesOf(&out), p)
		if got := m.c.read(out.Fh, 0, 100); got != "inside" && got != "" {
			m.t.Fatalf("a known file reads %q", got)
		}
		m.c.release(out.Fh)
	}
}
