package storage

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// sharedTree returns a directory that is a shared mount, as volumes with
// propagation are, with a mount below it.
func sharedTree(t *testing.T) string {
	t.Helper()
	dir := tree(t)
	mountAt(t, "tmpfs", dir, "tmpfs", 0)
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(dir, "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	mountAt(t, "tmpfs", below, "tmpfs", 0)
	return dir
}

func mountAt(t *testing.T, source, target, fstype string, flags uintptr) {
	t.Helper()
	if err := unix.Mount(source, target, fstype, flags, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// The host's later mounts are seen where that was requested, and only there;
// the host never sees mounts made in the share.
func TestPropagation(t *testing.T) {
	s := newShare(t)
	source := sharedTree(t)
	_, err := s.AddContainer(t.Context(), "c1", tree(t), []guestspec.Bind{
		{Index: 0, Source: source, Recursive: true},
		{Index: 1, Source: source, Recursive: true, Slave: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	late := filepath.Join(source, "late")
	if err := os.Mkdir(late, 0o755); err != nil {
		t.Fatal(err)
	}
	mountAt(t, tree(t), late, "", unix.MS_BIND)
	private, slave := inShare(s, "c1/mounts/0"), inShare(s, "c1/mounts/1")
	if _, err := os.Stat(filepath.Join(private, "late/file")); !os.IsNotExist(err) {
		t.Errorf("a private bind follows the host: %v", err)
	}
	if _, err := os.Stat(filepath.Join(slave, "late/file")); err != nil {
		t.Errorf("a slave does not follow the host: %v", err)
	}
	if err := s.space.do(t.Context(), func() error { return unix.Mount("tmpfs", s.dir("c1")+"/mounts/1/below", "tmpfs", 0, "") }); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(slave, "below/mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(source, "below/mine")); !os.IsNotExist(err) {
		t.Errorf("the host sees a mount of the share: %v", err)
	}
}

// A mount becomes read-only before it is in the share: the daemon serves it
// from then on.
func TestReadOnlyBeforeAttached(t *testing.T) {
	source := sharedTree(t)
	for _, b := range []guestspec.Bind{{ReadOnly: true}, {Recursive: true, ReadOnly: true, RecursiveReadOnly: true}} {
		detached, err := cloneMount(source, b.Recursive)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = detached.Close() })
		if err := setAttributes(detached, b); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{".", "below"} {
			var st unix.Statfs_t
			fd, err := unix.Openat(int(detached.Fd()), path, unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			err = unix.Fstatfs(fd, &st)
			unix.Close(fd)
			if err != nil {
				t.Fatal(err)
			}
			if want := path == "." || b.RecursiveReadOnly; want && st.Flags&unix.ST_RDONLY == 0 {
				t.Errorf("%+v: %s of the detached mount can be written to", b, path)
			}
		}
	}
}

// A read-only bind leaves the mounts below it as they are, so the guest must
// not make it read-only as a whole, unless those are read-only too.
func TestReadOnlyWithMountsBelow(t *testing.T) {
	s := newShare(t)
	source := sharedTree(t)
	paths, err := s.AddContainer(t.Context(), "c1", tree(t), []guestspec.Bind{
		{Index: 0, Source: source, Recursive: true, ReadOnly: true},
		{Index: 1, Source: source, Recursive: true, ReadOnly: true, RecursiveReadOnly: true},
		{Index: 2, Source: source, ReadOnly: true},
		{Index: 3, Source: tree(t), Recursive: true, ReadOnly: true, Slave: true},
		{Index: 4, Source: source, Recursive: true, ReadOnly: true, RecursiveReadOnly: true, Slave: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"0/top": false, "0/below/file": true, "1/top": false, "1/below/file": false, "2/top": false, "3/top": false} {
		err := os.WriteFile(inShare(s, "c1/mounts/"+name), nil, 0o600)
		if (err == nil) != want {
			t.Errorf("write %s: %v", name, err)
		}
	}
	for i, want := range []bool{true, false, false, true, false} { // of 3 the host may make one later
		if got := paths.Binds[i].Writable; got != want {
			t.Errorf("the guest may write to %+v: %v", paths.Binds[i], got)
		}
	}
}

func TestIDMappedBind(t *testing.T) {
	s := newShare(t)
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 5000, Size: 100}}
	source := tree(t)
	if _, err := s.AddContainer(t.Context(), "c1", tree(t), []guestspec.Bind{
		{Index: 0, Source: source, Recursive: true, ReadOnly: true, IDMap: &guestspec.IDMap{UIDs: ids, GIDs: ids}},
	}); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(inShare(s, "c1/mounts/0/file"), &st); err != nil || st.Uid != 5000 || st.Gid != 5000 {
		t.Errorf("owner %d:%d, %v; want 5000:5000", st.Uid, st.Gid, err)
	}
	if err := os.WriteFile(inShare(s, "c1/mounts/0/new"), nil, 0o600); err == nil {
		t.Error("a read-only mount can be written")
	}
	_, err := s.AddContainer(t.Context(), "c2", tree(t), []guestspec.Bind{{Index: 0, Source: source, IDMap: &guestspec.IDMap{UIDs: ids}}})
	if err == nil || !strings.Contains(err.Error(), "1 and 0") {
		t.Errorf("a mapping without group ids: %v", err)
	}
}

// A bind mount that says nothing else has its source's flags in the guest too: those
// of the share's own mount do not reach it.
func TestFlagsOfTheSource(t *testing.T) {
	s := newOwnShare(t)
	hardened, plain := t.TempDir(), t.TempDir()
	mountAt(t, "tmpfs", hardened, "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_RDONLY)
	mountAt(t, "tmpfs", plain, "tmpfs", 0)
	paths, err := s.AddContainer(t.Context(), "c1", tree(t), []guestspec.Bind{
		{Index: 0, Source: hardened, KeepsFlags: true}, {Index: 1, Source: hardened}, {Index: 2, Source: plain, KeepsFlags: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]string{{"nosuid", "noexec"}, nil, nil} {
		if got := paths.Binds[i].Flags; !slices.Equal(got, want) {
			t.Errorf("bind %d keeps %q, want %q", i, got, want)
		}
	}
}

// Kubernetes maps the owners of a volume without saying anything of the mounts
// below it. They are not mapped, as with runc: proc, for one, cannot be.
func TestIDMappedBindWithMountsBelow(t *testing.T) {
	s := newOwnShare(t)
	source := sharedTree(t)
	proc := filepath.Join(source, "proc")
	if err := os.Mkdir(proc, 0o755); err != nil {
		t.Fatal(err)
	}
	mountAt(t, "proc", proc, "proc", 0)
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 5000, Size: 100}}
	idmap := guestspec.IDMap{UIDs: ids, GIDs: ids}
	if _, err := s.AddContainer(t.Context(), "c1", tree(t), []guestspec.Bind{{Index: 0, Source: source, Recursive: true, IDMap: &idmap}}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint32{"": 5000, "/below": 0, "/proc": 0} {
		var st unix.Stat_t
		if err := unix.Stat(inShare(s, "c1/mounts/0"+name), &st); err != nil || st.Uid != want || st.Gid != want {
			t.Errorf("owner of %q: %d:%d, %v; want %d", name, st.Uid, st.Gid, err, want)
		}
	}
	idmap.Recursive = true
	if _, err := s.AddContainer(t.Context(), "c2", tree(t), []guestspec.Bind{{Index: 0, Source: source, Recursive: true, IDMap: &idmap}}); err == nil {
		t.Error("the owners of proc are mapped")
	}
	if err := errors.Join(unix.Unmount(proc, 0), unix.Mount("tmpfs", proc, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddContainer(t.Context(), "c3", tree(t), []guestspec.Bind{{Index: 0, Source: source, Recursive: true, IDMap: &idmap}}); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(inShare(s, "c3/mounts/0/below"), &st); err != nil || st.Uid != 5000 {
		t.Errorf("owner of a mount below, mapped too: %d, %v", st.Uid, err)
	}
}

// A volume's directory can be removed on the host while a guest uses it: the
// mount for the guest is in none of the host's namespaces.
func TestVolumeCanBeRemoved(t *testing.T) {
	s := newShare(t)
	source := sharedTree(t)
	if _, err := s.AddContainer(t.Context(), "c1", tree(t), []guestspec.Bind{{Index: 0, Source: source, Recursive: true}}); err != nil {
		t.Fatal(err)
	}
	late := filepath.Join(source, "late")
	if err := os.Mkdir(late, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", late, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddContainer(t.Context(), "c2", tree(t), []guestspec.Bind{{Index: 0, Source: source, Recursive: true}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(late, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(late); err != nil {
		t.Errorf("a guest keeps the host from removing a volume's directory: %v", err)
	}
}

// The guest cannot change the directories of its share, in which the host makes
// the mount points: renamed, one container's would be removed with another's.
func TestRootOfTheShareIsReadOnly(t *testing.T) {
	s := newShare(t)
	for _, id := range []string{"c1", "c2"} {
		if _, err := s.AddContainer(t.Context(), id, tree(t), []guestspec.Bind{{Index: 0, Source: tree(t)}}); err != nil {
			t.Fatal(err)
		}
	}
	for what, err := range map[string]error{
		"link":      os.Symlink("/", inShare(s, "c3")),
		"directory": os.Mkdir(inShare(s, "c1/x"), 0o755),
		"file":      os.WriteFile(inShare(s, "c1/mounts/1"), nil, 0o600),
		"mode":      os.Chmod(inShare(s, "c1"), 0),
		"rename":    os.Rename(inShare(s, "c2"), inShare(s, "c1/x")),
		"removal":   os.Remove(inShare(s, "c1/mounts")),
	} {
		if !errors.Is(err, unix.EROFS) {
			t.Errorf("%s: %v, want %v", what, err, unix.EROFS)
		}
	}
	if err := s.RemoveContainer(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	checkEmpty(t, s, "c1")
	for _, name := range []string{"c2/rootfs/file", "c2/mounts/0/file"} {
		if data, err := os.ReadFile(inShare(s, name)); string(data) != "data" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
}

// What the host mounts over a volume goes with it.
func TestMountsOverAVolume(t *testing.T) {
	s := newShare(t)
	source := sharedTree(t)
	if _, err := s.AddContainer(t.Context(), "c1", tree(t), []guestspec.Bind{{Index: 0, Source: source, Recursive: true, Slave: true}}); err != nil {
		t.Fatal(err)
	}
	mountAt(t, "tmpfs", source, "tmpfs", 0)
	if err := s.RemoveContainer(t.Context(), "c1"); err != nil {
		t.Error(err)
	}
	checkEmpty(t, s, "c1")
}

// virtiofsd creates a guest's device nodes but cannot open them.
func TestDeviceNodes(t *testing.T) {
	s := newShare(t)
	if _, err := s.AddContainer(t.Context(), "c1", tree(t), nil); err != nil {
		t.Fatal(err)
	}
	node := inShare(s, "c1/rootfs/null")
	if err := unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	if f, err := os.Open(node); err == nil {
		f.Close()
		t.Error("a device of the host's can be opened through the share")
	}
}

// Without mount_setattr (Linux before 5.12) mounts get their attributes when
// they are in the share, those below a recursive bind too.
func TestAttributesOnAnOldKernel(t *testing.T) {
	able := canSetAttributes
	canSetAttributes = func() bool { return false }
	defer func() { canSetAttributes = able }()
	s := newOwnShare(t)
	source := sharedTree(t)
	if err := unix.Mount("", filepath.Join(source, "below"), "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NOEXEC, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddContainer(t.Context(), "c1", tree(t), []guestspec.Bind{
		{Index: 0, Source: source, Recursive: true, Slave: true},
		{Index: 1, Source: source, Recursive: true, ReadOnly: true},
	}); err != nil {
		t.Fatal(err)
	}
	const confined = unix.ST_NODEV | unix.ST_NOSUID
	for name, want := range map[string]int64{
		"rootfs": confined, "mounts/0": confined, "mounts/0/below": confined | unix.ST_NOEXEC,
		"mounts/1": confined | unix.ST_RDONLY, "mounts/1/below": confined | unix.ST_NOEXEC,
	} {
		var st unix.Statfs_t
		if err := unix.Statfs(inShare(s, "c1/"+name), &st); err != nil {
			t.Fatal(err)
		}
		if got := st.Flags & (confined | unix.ST_NOEXEC | unix.ST_RDONLY); got != want {
			t.Errorf("%s: flags %#x, want %#x", name, got, want)
		}
	}
}
