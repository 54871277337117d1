package storage

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// addOne makes a container a user of one directory, and returns where it is in the
// share; empty if it would be the container's own.
func addOne(t *testing.T, s *Share, id string, b guestspec.Bind) string {
	t.Helper()
	placed, rest, err := s.AddVolumes(t.Context(), id, []guestspec.Bind{b})
	if err != nil || len(placed)+len(rest) != 1 {
		t.Fatal(placed, rest, err)
	}
	if len(placed) == 0 {
		return ""
	}
	return strings.TrimPrefix(placed[0].At, api.GuestSharedDir+"/")
}

func remove(t *testing.T, s *Share, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := s.RemoveContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
}

// writes writes to a file of the share, as a server of it does.
func writes(s *Share, name string) error { return os.WriteFile(inShare(s, name), nil, 0o600) }

// Containers that mount the same directory have the same bind of it, by whatever path
// and mount they have come to it.
func TestVolumesInCommon(t *testing.T) {
	s := newOwnShare(t)
	top := t.TempDir()
	dir, other := filepath.Join(top, "dir"), filepath.Join(top, "other")
	link, part, second, readOnly := filepath.Join(top, "link"), filepath.Join(top, "part"), filepath.Join(top, "second"), filepath.Join(top, "readonly")
	for _, d := range []string{dir, other, part, second, readOnly} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	mountAt(t, dir, part, "", unix.MS_BIND) // as the kubelet does for a subPath
	mountAt(t, dir, second, "", unix.MS_BIND)
	mountAt(t, dir, readOnly, "", unix.MS_BIND)
	if err := unix.Mount("", readOnly, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	ids := []specs.LinuxIDMapping{{HostID: 1, Size: 1}}
	first := addOne(t, s, "c1", guestspec.Bind{Source: dir, Recursive: true})
	for what, test := range map[string]struct {
		bind guestspec.Bind
		same bool
	}{
		"the same":               {guestspec.Bind{Source: dir, Recursive: true}, true},
		"by a link":              {guestspec.Bind{Source: link, Recursive: true}, true},
		"a subPath":              {guestspec.Bind{Source: part, Recursive: true}, true},
		"another subPath":        {guestspec.Bind{Source: second, Recursive: true}, true},
		"read-only":              {guestspec.Bind{Source: dir, Recursive: true, ReadOnly: true}, true},
		"with the host's flags":  {guestspec.Bind{Source: dir, Recursive: true, KeepsFlags: true}, true},
		"without mounts below":   {guestspec.Bind{Source: dir}, true},
		"a read-only mount":      {guestspec.Bind{Source: readOnly, Recursive: true}, false},
		"with the host's mounts": {guestspec.Bind{Source: dir, Recursive: true, Slave: true}, propagatesHere(t, dir) == ""},
		"another directory":      {guestspec.Bind{Source: other, Recursive: true}, false},
		"the one above":          {guestspec.Bind{Source: top, Recursive: true}, false},
		"mapped":                 {guestspec.Bind{Source: dir, Recursive: true, IDMap: &guestspec.IDMap{UIDs: ids, GIDs: ids}}, false},
	} {
		if at := addOne(t, s, "c2", test.bind); (at == first) != test.same {
			t.Errorf("%s: at %q; the first one is at %q", what, at, first)
		}
		remove(t, s, "c2")
	}
	if err := os.RemoveAll(other); err != nil {
		t.Fatal(err)
	}
	if at := addOne(t, s, "c2", guestspec.Bind{Source: tree(t) + "/file"}); at != "" {
		t.Errorf("a file is at %s", at)
	}
	if at := addOne(t, s, "c2", guestspec.Bind{Source: other}); at != "" {
		t.Errorf("what does not exist is at %s", at)
	}
}

// propagatesHere returns the propagation of the mount that has a directory.
func propagatesHere(t *testing.T, dir string) string {
	t.Helper()
	mounts, err := readHostMounts()
	if err != nil {
		t.Fatal(err)
	}
	source, err := openSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	id, err := mounts.identify(source, guestspec.Bind{Slave: true})
	if err != nil {
		t.Fatal(err)
	}
	return id.peers
}

// A directory with another's path or number is not that one.
func TestDirectoryInPlaceOfAnother(t *testing.T) {
	s := newOwnShare(t)
	dir := filepath.Join(t.TempDir(), "dir")
	at := map[string]bool{}
	for _, id := range []string{"c1", "c2"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		at[addOne(t, s, id, guestspec.Bind{Source: dir, Recursive: true})] = true
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
	if len(at) != 2 {
		t.Errorf("both are at %v", at)
	}
}

// A container that is made after the host has mounted something below a volume sees
// that, as with runc; the one that was made before does not.
func TestVolumesWithMountsBelow(t *testing.T) {
	s := newOwnShare(t)
	source := sharedTree(t)
	private, slave := guestspec.Bind{Source: source, Recursive: true}, guestspec.Bind{Source: source, Recursive: true, Slave: true}
	before, follows := addOne(t, s, "c1", private), addOne(t, s, "c1", slave)
	if at := addOne(t, s, "c2", private); at != before {
		t.Errorf("a bind with the same mounts is at %s, want %s", at, before)
	}
	if before == follows {
		t.Error("a slave and a private bind are the same")
	}
	late := filepath.Join(source, "late")
	if err := os.Mkdir(late, 0o755); err != nil {
		t.Fatal(err)
	}
	mountAt(t, tree(t), late, "", unix.MS_BIND)
	after := addOne(t, s, "c3", private)
	if at := addOne(t, s, "c3", slave); at != follows {
		t.Errorf("a second slave is at %s, want %s", at, follows)
	}
	for name, want := range map[string]bool{before: false, after: true, follows: true} {
		if _, err := os.Stat(inShare(s, name+"/late/file")); (err == nil) != want {
			t.Errorf("the later mount in %s: %v, want %v", name, err, want)
		}
	}
	// The guest cannot be told which of these may be written to: the host enforces it.
	readOnly := private
	readOnly.ReadOnly = true
	placed, _, err := s.AddVolumes(t.Context(), "c4", []guestspec.Bind{readOnly})
	if err != nil || !placed[0].Writable {
		t.Fatal(placed, err)
	}
	sealed := path.Join(podVolumesName, path.Base(placed[0].At))
	if err := writes(s, sealed+"/top"); !errors.Is(err, unix.EROFS) || sealed == after {
		t.Errorf("write to %s: %v", sealed, err)
	}
	if err := writes(s, sealed+"/below/file"); err != nil {
		t.Error(err)
	}
	readOnly.RecursiveReadOnly = true
	placed, _, err = s.AddVolumes(t.Context(), "c5", []guestspec.Bind{readOnly})
	if err != nil || placed[0].Writable {
		t.Fatal(placed, err)
	}
	if err := writes(s, path.Join(podVolumesName, path.Base(placed[0].At), "below/file")); !errors.Is(err, unix.EROFS) {
		t.Errorf("write below a recursively read-only one: %v", err)
	}
}

// The host refuses writes until a container may write, also without mount_setattr.
func TestReadOnlyVolume(t *testing.T) {
	for name, able := range map[string]func() bool{"mount_setattr": canSetAttributes, "remount": func() bool { return false }} {
		t.Run(name, func(t *testing.T) {
			before := canSetAttributes
			canSetAttributes = able
			defer func() { canSetAttributes = before }()
			s := newOwnShare(t)
			reader := guestspec.Bind{Source: t.TempDir(), Recursive: true, ReadOnly: true}
			writer := guestspec.Bind{Source: reader.Source, Recursive: true}
			at := addOne(t, s, "c1", reader)
			if again := addOne(t, s, "c2", reader); again != at {
				t.Errorf("a second reader has %s, want %s", again, at)
			}
			if err := writes(s, at+"/x"); !errors.Is(err, unix.EROFS) {
				t.Errorf("write before there is a writer: %v", err)
			}
			if again := addOne(t, s, "c3", writer); again != at {
				t.Errorf("a writer has %s, want %s", again, at)
			}
			if err := writes(s, at+"/x"); err != nil {
				t.Error(err)
			}
			var st unix.Statfs_t
			if err := unix.Statfs(inShare(s, at), &st); err != nil || st.Flags&unix.ST_NODEV == 0 || st.Flags&unix.ST_NOSUID == 0 {
				t.Errorf("flags %#x, %v", st.Flags, err)
			}
			remove(t, s, "c1", "c2", "c3")
			if at = addOne(t, s, "c4", reader); writes(s, at+"/x") == nil {
				t.Error("the next reader's can be written to")
			}
		})
	}
}

// A volume whose own mount on the host is read-only stays so.
func TestVolumeOfReadOnlyMount(t *testing.T) {
	s := newOwnShare(t)
	dir := t.TempDir()
	mountAt(t, dir, dir, "", unix.MS_BIND)
	if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	at := addOne(t, s, "c1", guestspec.Bind{Source: dir, Recursive: true, ReadOnly: true})
	if again := addOne(t, s, "c2", guestspec.Bind{Source: dir, Recursive: true}); again != at {
		t.Errorf("a writer has %s, want %s", again, at)
	}
	if err := writes(s, at+"/x"); !errors.Is(err, unix.EROFS) {
		t.Errorf("write: %v", err)
	}
}

// A volume is in the share as long as a container has it, and the host's mount is busy
// no longer.
func TestVolumeEndsWithItsLastUser(t *testing.T) {
	s := newOwnShare(t)
	dir := t.TempDir()
	mountAt(t, "tmpfs", dir, "tmpfs", 0)
	b := guestspec.Bind{Source: dir, Recursive: true}
	at := addOne(t, s, "c1", b)
	addOne(t, s, "c1", b)
	addOne(t, s, "c2", b)
	remove(t, s, "c1", "c1")
	if err := writes(s, at+"/x"); err != nil {
		t.Errorf("the other user has lost it: %v", err)
	}
	remove(t, s, "c2")
	checkEmpty(t, s, at)
	if next := addOne(t, s, "c3", b); next == at {
		t.Errorf("the guest may remember what was at %s", next)
	}
	remove(t, s, "c3")
	if len(s.volumes.list) != 0 {
		t.Errorf("left: %v", s.volumes.list)
	}
}

// The requests of a volume are awaited by each container with which the guest may
// unmount it: the last one that has it there, whichever else is about to get it, and
// of two that are removed concurrently the second one at least.
func TestVolumesThatTheGuestUnmounts(t *testing.T) {
	s := newOwnShare(t)
	b := guestspec.Bind{Source: t.TempDir()}
	at := addOne(t, s, "c1", b)
	s.Created("c1")
	addOne(t, s, "c2", b)
	check := func(id string, want ...string) {
		t.Helper()
		if got := s.volumes.unmounted(id); !slices.Equal(got, want) {
			t.Errorf("with %s the guest unmounts %v, want %v", id, got, want)
		}
	}
	check("c1", at) // c2 is not in the guest
	s.Created("c1")
	s.Created("c2")
	check("other")
	check("c1")
	check("c2", at)
	remove(t, s, "c1")
	check("c2", at)
}

// A container whose files cannot be added has no volumes either.
func TestVolumesOfFailedContainer(t *testing.T) {
	s := newOwnShare(t)
	good := guestspec.Bind{Source: t.TempDir()}
	bad := guestspec.Bind{Source: t.TempDir(), Name: "x", OfPod: true}
	if _, _, err := s.AddVolumes(t.Context(), "c1", []guestspec.Bind{good, bad}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a number that is none: %v", err)
	}
	if len(s.volumes.list) != 0 {
		t.Errorf("left: %v", s.volumes.list)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.AddVolumes(ctx, "c1", []guestspec.Bind{good}); err == nil {
		t.Error("made after its context's end")
	}
	if len(s.volumes.list) != 0 {
		t.Errorf("left: %v", s.volumes.list)
	}
}

// A container that continues from a saved one has its volumes' numbers, or an error.
func TestNumberOfSavedVolume(t *testing.T) {
	s := newOwnShare(t)
	dir, other := t.TempDir(), t.TempDir()
	if at := addOne(t, s, "c1", guestspec.Bind{Source: dir, Name: "7", OfPod: true}); at != podVolumesName+"/7" {
		t.Errorf("at %s", at)
	}
	if at := addOne(t, s, "c1", guestspec.Bind{Source: dir, Name: "7", OfPod: true}); at != podVolumesName+"/7" {
		t.Errorf("mounted twice: at %s", at)
	}
	if at := addOne(t, s, "c1", guestspec.Bind{Source: dir, Name: "7"}); at != "" {
		t.Errorf("one of the container's own is at %s", at)
	}
	if at := addOne(t, s, "c2", guestspec.Bind{Source: other}); at != podVolumesName+"/8" {
		t.Errorf("the next one is at %s", at)
	}
	for _, name := range []string{"7", "0", "-1", "99999999999"} {
		if _, _, err := s.AddVolumes(t.Context(), "c3", []guestspec.Bind{{Source: other, Name: name, OfPod: true}}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("number %s: %v", name, err)
		}
	}
}

// Containers that are made and removed concurrently have one bind whenever two have it.
func TestVolumesConcurrently(t *testing.T) {
	s := newOwnShare(t)
	b := guestspec.Bind{Source: tree(t), Recursive: true}
	var users sync.WaitGroup
	for _, id := range []string{"c1", "c2", "c3", "c4"} {
		users.Go(func() {
			for i := range 50 {
				b := b
				b.ReadOnly = i%2 == 0
				placed, rest, err := s.AddVolumes(t.Context(), id, []guestspec.Bind{b})
				if err != nil || len(rest) != 0 {
					t.Error(rest, err)
					return
				}
				name := path.Join(podVolumesName, path.Base(placed[0].At))
				if data, err := os.ReadFile(inShare(s, name+"/file")); string(data) != "data" {
					t.Errorf("%s: %q, %v", name, data, err)
				}
				if err := writes(s, name+"/"+id); err != nil && !b.ReadOnly {
					t.Error(err)
				}
				if err := s.RemoveContainer(t.Context(), id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	users.Wait()
	if mounts, err := s.space.mounts(s.dir(podVolumesName)); err != nil || len(mounts) != 0 {
		t.Errorf("left: %v, %v", mounts, err)
	}
}
