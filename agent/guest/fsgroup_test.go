package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// The group of these tests; only root may give files to it.
const testGroup = 4711

func asRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
}

// groupVolume is a directory with some of everything, and one outside of it that a
// link leads to.
func groupVolume(t *testing.T) (volume, outside string) {
	t.Helper()
	dir := t.TempDir()
	volume, outside = dir+"/v", dir+"/out"
	for _, sub := range []string{volume + "/d/e", outside} {
		must(t, os.MkdirAll(sub, 0o700))
	}
	for _, file := range []string{volume + "/d/e/f", outside + "/f"} {
		must(t, os.WriteFile(file, nil, 0o400))
	}
	must(t, os.WriteFile(volume+"/set", nil, 0o700))
	must(t, os.Chmod(volume+"/set", 0o755|os.ModeSetuid))
	must(t, os.Symlink(outside, volume+"/d/link"))
	must(t, os.Symlink("../out/f", volume+"/filelink"))
	must(t, unix.Mkfifo(volume+"/fifo", 0o600))
	return volume, outside
}

func owners(t *testing.T, root string) (found []string) {
	t.Helper()
	must(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		must(t, unix.Lstat(path, &st))
		rel, _ := filepath.Rel(root, path)
		words := fmt.Sprintf("%s %d", rel, st.Gid)
		if st.Mode&unix.S_IFMT != unix.S_IFLNK {
			words += fmt.Sprintf(" %o", st.Mode&0o7777)
		}
		found = append(found, words)
		return nil
	}))
	return found
}

func TestSetGroup(t *testing.T) {
	asRoot(t)
	volume, outside := groupVolume(t)
	before := owners(t, outside)
	must(t, setGroup(t.Context(), volume, &api.FSGroup{Gid: testGroup}))
	want := []string{
		". 4711 2770", "d 4711 2770", "d/e 4711 2770", "d/e/f 4711 660", "d/link 4711", "fifo 4711 660", "filelink 4711", "set 4711 4775",
	}
	if diff := cmp.Diff(want, owners(t, volume)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, owners(t, outside)); diff != "" {
		t.Error(diff)
	}
}

func TestSetGroupOnRootMismatch(t *testing.T) {
	asRoot(t)
	for _, test := range []struct {
		gid  int
		mode uint32
		want bool
	}{
		{testGroup, 0o2770, false}, {testGroup, 0o2775, false},
		{testGroup, 0o770, true}, {testGroup, 0o2760, true}, {testGroup, 0o2570, true}, {0, 0o2770, true},
	} {
		volume, _ := groupVolume(t)
		must(t, os.Chown(volume, 0, test.gid))
		must(t, unix.Chmod(volume, test.mode))
		must(t, setGroup(t.Context(), volume, &api.FSGroup{Gid: testGroup, OnRootMismatch: true}))
		if got := owners(t, volume+"/d/e/f")[0] == ". 4711 660"; got != test.want {
			t.Errorf("%d %o: changed %v", test.gid, test.mode, got)
		}
	}
}

// An interrupted change does not count as done, because the root is changed
// last.
func TestSetGroupStops(t *testing.T) {
	asRoot(t)
	volume, _ := groupVolume(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := setGroup(ctx, volume, &api.FSGroup{Gid: testGroup}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := owners(t, volume)[0]; got != ". 0 700" {
		t.Errorf("root is %q", got)
	}
}

func TestSetGroupOfTooManyDirectories(t *testing.T) {
	asRoot(t)
	volume := t.TempDir()
	t.Cleanup(func() { _ = os.RemoveAll(volume) })
	dir, err := os.OpenRoot(volume)
	must(t, err)
	for range maxDepth + 1 {
		must(t, dir.Mkdir("d", 0o700))
		below, err := dir.OpenRoot("d")
		must(t, err)
		must(t, dir.Close())
		dir = below
	}
	must(t, dir.Close())
	if err := setGroup(t.Context(), volume, &api.FSGroup{Gid: testGroup}); !errdefs.IsFailedPrecondition(err) || len(err.Error()) > 1000 {
		t.Error(err)
	}
}

func TestSetGroupRefuses(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Symlink("/etc", dir+"/link"))
	for target, gid := range map[string]uint32{dir: 1<<32 - 1, dir + "/none": 1} {
		if err := setGroup(t.Context(), target, &api.FSGroup{Gid: gid}); err == nil {
			t.Errorf("%s: no error", target)
		}
	}
}

func TestMountWithAGroup(t *testing.T) {
	f := newMachine(t)
	f.blk(t, "1e", "vda", "254:0")
	group := func(s *api.Storage) *api.Storage {
		s.FsGroup = &api.FSGroup{Gid: testGroup}
		return s
	}
	must(t, f.Mount(t.Context(), []*api.Storage{
		group(f.disk(virtioBlk, "01/1e", "ext4", "a")), group(f.disk(virtioBlk, "01/1e", "ext4", "b", "ro")), group(f.disk("tmpfs", "", "", "c")),
	}))
	f.answers["group 4711 run/e"] = []error{unix.EIO}
	err := f.Mount(t.Context(), []*api.Storage{f.disk("tmpfs", "", "", "d"), group(f.disk("tmpfs", "", "", "e"))})
	if err == nil || !strings.Contains(err.Error(), "run/e: give the files to group 4711: input/output error") {
		t.Error(err)
	}
	if err := f.Mount(t.Context(), []*api.Storage{group(f.disk("virtio-fs", "tag", "", "g"))}); !errdefs.IsInvalidArgument(err) {
		t.Error(err)
	}
	want := []string{
		"mount ext4 dev/vda run/a", "group 4711 run/a", "mount ext4 dev/vda run/b ro", "mount tmpfs tmpfs run/c", "group 4711 run/c",
		"mount tmpfs tmpfs run/d", "mount tmpfs tmpfs run/e", "group 4711 run/e", "unmount run/e", "unmount run/d",
	}
	if diff := cmp.Diff(want, f.done); diff != "" {
		t.Error(diff)
	}
}
