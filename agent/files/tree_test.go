package files

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/agent/api"
)

// newTree makes a Tree in a temporary directory, beside a directory "outside".
func newTree(t testing.TB) *Tree {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"tree", "outside"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	tree := New(filepath.Join(dir, "tree"))
	t.Cleanup(tree.Close)
	return tree
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// own sets a change's owner to the test's user.
func own(c *api.FileChange) *api.FileChange {
	c.Uid, c.Gid = uint32(os.Getuid()), uint32(os.Getgid())
	return c
}

func (t *Tree) dir(rel string, mode uint32) *api.FileChange {
	return own(&api.FileChange{Path: t.root + "/" + rel, Mode: mode, Change: &api.FileChange_Directory{Directory: &api.Directory{}}})
}

func (t *Tree) part(rel string, mode uint32, offset int, content string, last bool) *api.FileChange {
	return own(&api.FileChange{Path: t.root + "/" + rel, Mode: mode, Change: &api.FileChange_File{
		File: &api.FilePart{Offset: uint64(offset), Content: []byte(content), Last: last, Mtime: &timestamppb.Timestamp{Seconds: 1e9, Nanos: 7}},
	}})
}

func (t *Tree) file(rel, content string) *api.FileChange { return t.part(rel, 0o640, 0, content, true) }

func (t *Tree) link(rel, target string) *api.FileChange {
	return &api.FileChange{Path: t.root + "/" + rel, Change: &api.FileChange_Symlink{Symlink: target}}
}

func (t *Tree) remove(rel string) *api.FileChange {
	return &api.FileChange{Path: t.root + "/" + rel, Change: &api.FileChange_Remove{Remove: &api.Remove{}}}
}

// look lists what is below a directory, in words.
func look(t testing.TB, root string) (found []string) {
	t.Helper()
	must(t, filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		words := fmt.Sprint(rel, " ", info.Mode())
		switch {
		case e.Type().IsRegular():
			content, err := os.ReadFile(path)
			must(t, err)
			words += " " + string(content)
		case e.Type() == os.ModeSymlink:
			target, err := os.Readlink(path)
			must(t, err)
			words = rel + " -> " + target
		}
		found = append(found, words)
		return nil
	}))
	return found
}

func (t *Tree) want(tt *testing.T, want ...string) {
	tt.Helper()
	if diff := cmp.Diff(want, look(tt, t.root)); diff != "" {
		tt.Error(diff)
	}
}

func TestChange(t *testing.T) {
	tree := newTree(t)
	must(t, tree.Change(t.Context(), []*api.FileChange{
		tree.dir("a", 0o2750), tree.dir("a/b", 0o1777), tree.file("a/b/f", "one"), tree.part("a/set", 0o6755, 0, "", true),
		tree.link("a/l", "../anything"), tree.link("a/b/l", "f"),
	}))
	tree.want(t, "a dgrwxr-x---", "a/b dtrwxrwxrwx", "a/b/f -rw-r----- one", "a/b/l -> f", "a/l -> ../anything", "a/set ugrwxr-xr-x ")
	if info, err := os.Stat(tree.root + "/a/b/f"); err != nil || !info.ModTime().Equal(time.Unix(1e9, 7)) {
		t.Errorf("%v, %v", info, err)
	}
	must(t, tree.Change(t.Context(), []*api.FileChange{
		tree.dir("a", 0o700), tree.file("a/b/f", "two"), tree.link("a/b/l", "g"), tree.file("a/l", "file"), tree.link("a/set", "link"),
		tree.remove("nothing"), tree.remove("no/thing"), tree.remove("a/b/f/x"),
	}))
	tree.want(t, "a drwx------", "a/b dtrwxrwxrwx", "a/b/f -rw-r----- two", "a/b/l -> g", "a/l -rw-r----- file", "a/set -> link")
	must(t, tree.Change(t.Context(), []*api.FileChange{tree.remove("a/b"), tree.remove("a/set")}))
	tree.want(t, "a drwx------", "a/l -rw-r----- file")
}

func TestParts(t *testing.T) {
	tree := newTree(t)
	must(t, tree.Change(t.Context(), []*api.FileChange{tree.file("f", "old")}))
	for _, c := range []*api.FileChange{tree.part("f", 0o600, 0, "ab", false), tree.part("f", 0o600, 2, "cd", false)} {
		must(t, tree.Change(t.Context(), []*api.FileChange{c}))
		tree.want(t, "f -rw-r----- old")
	}
	// Files of several volumes arrive interleaved.
	must(t, tree.Change(t.Context(), []*api.FileChange{
		tree.part("g", 0o600, 0, "x", false), tree.part("f", 0o600, 4, "", true), tree.part("g", 0o600, 1, "y", true),
	}))
	tree.want(t, "f -rw------- abcd", "g -rw------- xy")
	if len(tree.partials) != 0 {
		t.Errorf("%d files are open", len(tree.partials))
	}
}

func TestPartsThatAreNotGoneOnWith(t *testing.T) {
	for name, test := range map[string]struct {
		between func(tree *Tree) []*api.FileChange
		want    string
	}{
		"a gap":              {func(tree *Tree) []*api.FileChange { return []*api.FileChange{tree.part("d/f", 0, 3, "", false)} }, "begins at 3, want 2"},
		"again":              {func(tree *Tree) []*api.FileChange { return []*api.FileChange{tree.part("d/f", 0, 1, "", false)} }, "begins at 1, want 2"},
		"removed":            {func(tree *Tree) []*api.FileChange { return []*api.FileChange{tree.remove("d/f")} }, ""},
		"removed with all":   {func(tree *Tree) []*api.FileChange { return []*api.FileChange{tree.remove("d")} }, ""},
		"link instead":       {func(tree *Tree) []*api.FileChange { return []*api.FileChange{tree.link("d/f", "x")} }, ""},
		"its directory gone": {func(tree *Tree) []*api.FileChange { _ = os.RemoveAll(tree.root + "/d"); return nil }, ""},
		"one too many": {func(tree *Tree) (all []*api.FileChange) {
			for i := range maxPartials {
				all = append(all, tree.part(fmt.Sprint("d/", i), 0, 0, "x", false))
			}
			return all
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tree := newTree(t)
			must(t, tree.Change(t.Context(), []*api.FileChange{tree.dir("d", 0o700), tree.part("d/f", 0o600, 0, "ab", false)}))
			err := tree.Change(t.Context(), test.between(tree))
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if err := tree.Change(t.Context(), []*api.FileChange{tree.part("d/f", 0o600, 2, "cd", true)}); err == nil {
				t.Error("the file was gone on with")
			}
			if len(tree.partials) > maxPartials {
				t.Errorf("%d files are open", len(tree.partials))
			}
			for _, found := range look(t, tree.root) {
				if strings.Contains(found, "ab") || strings.Contains(found, ".katabox") {
					t.Error(found)
				}
			}
		})
	}
}

func TestInPlace(t *testing.T) {
	tree := newTree(t)
	inPlace := func(rel, content string) []*api.FileChange {
		first, last := tree.part(rel, 0o600, 0, content[:1], false), tree.part(rel, 0o604, 1, content[1:], true)
		last.GetFile().InPlace = true
		return []*api.FileChange{first, last}
	}
	must(t, tree.Change(t.Context(), append(inPlace("f", "new"), tree.link("l", "f"), tree.dir("d", 0o700))))
	before, err := os.Stat(tree.root + "/f")
	must(t, err)
	for _, content := range []string{"longer than before", "less", "x"} {
		must(t, tree.Change(t.Context(), inPlace("f", content)))
		after, err := os.Stat(tree.root + "/f")
		must(t, err)
		if !os.SameFile(before, after) || !after.ModTime().Equal(time.Unix(1e9, 7)) {
			t.Errorf("%q: another file, or changed at %v", content, after.ModTime())
		}
		tree.want(t, "d drwx------", "f -rw----r-- "+content, "l -> f")
	}
	// What is not a regular file is replaced, not followed.
	must(t, tree.Change(t.Context(), inPlace("l", "link")))
	must(t, unix.Mkfifo(tree.root+"/fifo", 0o600))
	must(t, tree.Change(t.Context(), inPlace("fifo", "fifo")))
	if err := tree.Change(t.Context(), inPlace("d", "directory")); !errdefs.IsFailedPrecondition(err) {
		t.Error(err)
	}
	tree.want(t, "d drwx------", "f -rw----r-- x", "fifo -rw----r-- fifo", "l -rw----r-- link")
}

func TestAbandonedPartsGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := newTree(t)
		must(t, tree.Change(t.Context(), []*api.FileChange{tree.part("f", 0o600, 0, "ab", false)}))
		time.Sleep(partialAge)
		must(t, tree.Change(t.Context(), []*api.FileChange{tree.part("g", 0o600, 0, "ab", false)}))
		time.Sleep(time.Nanosecond)
		must(t, tree.Change(t.Context(), []*api.FileChange{tree.dir("d", 0o700)}))
		if len(tree.partials) != 1 || tree.partials[0].rel != "g" {
			t.Errorf("%d files are open", len(tree.partials))
		}
	})
}

// hostile is a tree in which a container has made links.
func hostile(t testing.TB) (tree *Tree, outside string) {
	t.Helper()
	tree = newTree(t)
	outside = filepath.Join(filepath.Dir(tree.root), "outside")
	must(t, os.Symlink(outside, tree.root+"/out"))
	must(t, os.Symlink("../outside", tree.root+"/up"))
	must(t, os.Symlink(".", tree.root+"/self"))
	must(t, os.Mkdir(tree.root+"/dir", 0o700))
	must(t, os.Symlink(outside+"/kept", tree.root+"/dir/kept"))
	must(t, os.WriteFile(outside+"/kept", []byte("kept"), 0o600))
	return tree, outside
}

func TestRefuses(t *testing.T) {
	tree, outside := hostile(t)
	before, around := look(t, outside), look(t, tree.root)
	long := strings.Repeat("x", maxName+1)
	for _, test := range []struct {
		change *api.FileChange
		want   string
		is     func(error) bool
	}{
		{tree.file("out/f", ""), "too many levels of symbolic links", errdefs.IsInvalidArgument},
		{tree.file("up/f", ""), "too many levels of symbolic links", errdefs.IsInvalidArgument},
		{tree.dir("self/d", 0), "too many levels of symbolic links", errdefs.IsInvalidArgument},
		{tree.link("out/l", "x"), "too many levels of symbolic links", errdefs.IsInvalidArgument},
		{tree.remove("out/kept"), "too many levels of symbolic links", errdefs.IsInvalidArgument},
		{tree.dir("out", 0o777), "not a directory", errdefs.IsFailedPrecondition},
		{tree.dir("dir/kept", 0o777), "not a directory", errdefs.IsFailedPrecondition},
		{tree.file("dir", ""), "is a directory", errdefs.IsFailedPrecondition},
		{tree.link("dir", "x"), "is a directory", errdefs.IsFailedPrecondition},
		{tree.file("none/f", ""), "no such file", errdefs.IsNotFound},
		{tree.file("../outside/f", ""), "want a clean path below", errdefs.IsInvalidArgument},
		{tree.file("", ""), "want a clean path below", errdefs.IsInvalidArgument},
		{tree.file(".", ""), "want a clean path below", errdefs.IsInvalidArgument},
		{tree.file("a//b", ""), "want a clean path below", errdefs.IsInvalidArgument},
		{own(&api.FileChange{Path: tree.root, Change: &api.FileChange_Remove{}}), "want a clean path below", errdefs.IsInvalidArgument},
		{own(&api.FileChange{Path: "/etc/passwd", Change: &api.FileChange_Remove{}}), "want a clean path below", errdefs.IsInvalidArgument},
		{tree.file(long, ""), "256 bytes", errdefs.IsInvalidArgument},
		{tree.file(strings.Repeat("x/", maxPath/2)+"x", ""), "want at most 4095", errdefs.IsInvalidArgument},
		{tree.file("a\x00b", ""), "zero byte", errdefs.IsInvalidArgument},
		{tree.link("l", ""), "target has 0 bytes", errdefs.IsInvalidArgument},
		{tree.link("l", "a\x00b"), "invalid argument", errdefs.IsInvalidArgument},
		{tree.link("l", strings.Repeat("x", maxPath+1)), "target has 4096 bytes", errdefs.IsInvalidArgument},
		{tree.dir("d", 0o10000), "mode is", errdefs.IsInvalidArgument},
		{&api.FileChange{Path: tree.root + "/d", Uid: 1<<32 - 1, Change: &api.FileChange_Directory{}}, "owner is", errdefs.IsInvalidArgument},
		{&api.FileChange{Path: tree.root + "/d"}, "names no change", errdefs.IsInvalidArgument},
		{nil, "want a clean path", errdefs.IsInvalidArgument},
	} {
		err := tree.Change(t.Context(), []*api.FileChange{test.change})
		if err == nil || !strings.Contains(err.Error(), test.want) || !test.is(err) {
			t.Errorf("%.100v: %v, want %q", test.change, err, test.want)
		}
	}
	if diff := cmp.Diff(append(before, around...), append(look(t, outside), look(t, tree.root)...)); diff != "" {
		t.Error(diff)
	}
	if len(tree.partials) != 0 {
		t.Errorf("%d files are open", len(tree.partials))
	}
	must(t, tree.Change(t.Context(), []*api.FileChange{
		tree.remove("dir"), tree.file("out", "file"), tree.link("up", "elsewhere"), tree.remove("self"),
	}))
	tree.want(t, "out -rw-r----- file", "up -> elsewhere")
	if diff := cmp.Diff(before, look(t, outside)); diff != "" {
		t.Error(diff)
	}
}

func TestTheFirstRefusalEndsIt(t *testing.T) {
	tree := newTree(t)
	if err := tree.Change(t.Context(), []*api.FileChange{tree.file("a", ""), tree.file("no/b", ""), tree.file("c", "")}); !errdefs.IsNotFound(err) {
		t.Error(err)
	}
	tree.want(t, "a -rw-r----- ")
	if err := New(tree.root+"/none").Change(t.Context(), nil); err == nil {
		t.Error("changed what is not there")
	}
}

// FuzzChange makes changes in a tree with a container's links. Whatever the
// host requests, nothing outside the tree changes.
func FuzzChange(f *testing.F) {
	f.Add("a", "x", uint32(0o644), uint64(0), true, uint8(0))
	f.Add("out/kept", "../outside/kept", uint32(0o777), uint64(0), true, uint8(1))
	f.Add("dir/kept", "x", uint32(0o777), uint64(1), false, uint8(2))
	f.Add("dir/kept", "x", uint32(0o777), uint64(0), true, uint8(129))
	f.Add("../outside", "/etc", uint32(0o7777), uint64(0), true, uint8(3))
	f.Fuzz(func(t *testing.T, rel, content string, mode uint32, offset uint64, last bool, kind uint8) {
		tree, outside := hostile(t)
		before := look(t, outside)
		c := own(&api.FileChange{Path: tree.root + "/" + rel, Mode: mode})
		switch kind % 4 {
		case 0:
			c.Change = &api.FileChange_Directory{}
		case 1:
			c.Change = &api.FileChange_File{File: &api.FilePart{Offset: offset, Content: []byte(content), Last: last, InPlace: kind >= 128}}
		case 2:
			c.Change = &api.FileChange_Symlink{Symlink: content}
		case 3:
			c.Change = &api.FileChange_Remove{}
		}
		err := tree.Change(t.Context(), []*api.FileChange{c, c})
		if err == nil && kind%4 == 1 && last {
			if got, _ := os.ReadFile(c.GetPath()); !bytes.Equal(got, []byte(content)) {
				t.Errorf("%q has %q, want %q", rel, got, content)
			}
		}
		if diff := cmp.Diff(before, look(t, outside)); diff != "" {
			t.Errorf("%q: %s", rel, diff)
		}
	})
}
