package store

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"
)

// quiet is a Progress that ignores its calls.
type quiet struct{}

func (quiet) Layer(int, int, int64) {}
func (quiet) Moved(int)             {}

// entry is one entry of a layer.
type entry struct {
	tar.Header
	data string
}

func dirEntry(name string, mode int64) entry {
	return entry{Header: tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: mode}}
}

func fileEntry(name, data string) entry {
	return entry{Header: tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data))}, data: data}
}

func linkEntry(kind byte, name, target string) entry {
	return entry{Header: tar.Header{Name: name, Typeflag: kind, Linkname: target, Mode: 0o777}}
}

func layerOf(t testing.TB, entries ...entry) Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return rawLayer(b.Bytes())
}

func rawLayer(data []byte) Layer {
	return Layer{DiffID: digest.FromBytes(data), Open: func(func(int)) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}}
}

func newStore(t testing.TB) *Store {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stacks reports whether the store stacks layers.
func stacks(t *testing.T, s *Store) bool {
	t.Helper()
	overlay, err := s.overlay()
	if err != nil {
		t.Fatal(err)
	}
	return overlay
}

func noOverlay() (bool, error) { return false, nil }

// both calls f with a store that uses overlayfs, if the machine can, and with one
// that does not.
func both(t *testing.T, f func(t *testing.T, s *Store)) {
	t.Run("overlay", func(t *testing.T) {
		s := newStore(t)
		if !stacks(t, s) {
			t.Skip("no overlayfs here")
		}
		f(t, s)
	})
	t.Run("flat", func(t *testing.T) {
		s := newStore(t)
		s.overlay = noOverlay
		f(t, s)
	})
}

func add(t *testing.T, s *Store, name string, layers ...Layer) Image {
	t.Helper()
	img, err := s.Add(context.Background(), Source{Name: name, Layers: layers}, quiet{})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// see lists an image's files: path, mode, and the content or target.
func see(t *testing.T, s *Store, img Image) map[string]string {
	t.Helper()
	seen := make(map[string]string)
	err := s.View(t.Context(), img, func(root string) error {
		return filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
			if err != nil || path == root {
				return err
			}
			line := info.Mode().String()
			if info.Mode().IsRegular() {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				line += " " + string(data)
			}
			if target, err := os.Readlink(path); err == nil {
				line += " " + target
			}
			seen[strings.TrimPrefix(path, root+"/")] = line
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

func TestLayersArePutTogether(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		owned := fileEntry("tmp/owned", "mine")
		owned.Uid, owned.Gid, owned.Mode = 1000, 37, 0o4755
		owned.PAXRecords = map[string]string{"SCHILY.xattr.user.color": "red"}
		same := owned // as tar programs write it
		same.Typeflag, same.Name, same.Linkname, same.Size, same.data = tar.TypeLink, "tmp/same", "tmp/owned", 0, ""
		node := entry{Header: tar.Header{Name: "dev/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3, Mode: 0o666}}
		img := add(t, s, "test",
			layerOf(t, dirEntry("tmp/", 0o1777), owned, same,
				dirEntry("dev", 0o755), node, fileEntry("gone", "x"), fileEntry("full/a", "a"), fileEntry("full/b", "b"),
				linkEntry(tar.TypeSymlink, "abs", "/tmp/owned")),
			layerOf(t, fileEntry("tmp/new", "new"), fileEntry(".wh.gone", ""), fileEntry("full/.wh..wh..opq", ""), fileEntry("full/c", "c")))
		want := map[string]string{
			"tmp": "dtrwxrwxrwx", "tmp/owned": "urwxr-xr-x mine", "tmp/same": "urwxr-xr-x mine", "tmp/new": "-rw-r--r-- new",
			"dev": "drwxr-xr-x", "dev/null": "Dcrw-rw-rw-", "full": "drwxr-xr-x", "full/c": "-rw-r--r-- c", "abs": "Lrwxrwxrwx /tmp/owned",
		}
		if diff := cmp.Diff(want, see(t, s, img)); diff != "" {
			t.Error(diff)
		}
		checkOwned(t, s, img)
	})
}

func checkOwned(t *testing.T, s *Store, img Image) {
	t.Helper()
	err := s.View(t.Context(), img, func(root string) error {
		var st, same unix.Stat_t
		if err := errors.Join(unix.Stat(root+"/tmp/owned", &st), unix.Stat(root+"/tmp/same", &same)); err != nil {
			return err
		}
		if st.Uid != 1000 || st.Gid != 37 || st.Ino != same.Ino || st.Nlink != 2 {
			t.Errorf("owner %d:%d, inodes %d and %d, %d links", st.Uid, st.Gid, st.Ino, same.Ino, st.Nlink)
		}
		value := make([]byte, 16)
		n, err := unix.Getxattr(root+"/tmp/owned", "user.color", value)
		if err != nil || string(value[:max(n, 0)]) != "red" {
			t.Errorf("attribute %q, %v", value[:max(n, 0)], err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Hostile layers try to write, read and remove files outside of their tree.
func TestHostileLayersStayInside(t *testing.T) {
	whiteout := fileEntry("../../.wh.canary", "")
	tests := map[string][]entry{
		"dots":                     {fileEntry("../../canary", "bad")},
		"absolute":                 {fileEntry("/../../canary", "bad")},
		"through a symlink":        {linkEntry(tar.TypeSymlink, "out", "../.."), fileEntry("out/canary", "bad")},
		"through an absolute one":  {linkEntry(tar.TypeSymlink, "out", "/ROOT"), fileEntry("out/canary", "bad")},
		"through two symlinks":     {linkEntry(tar.TypeSymlink, "a", ".."), linkEntry(tar.TypeSymlink, "b", "a/.."), fileEntry("b/canary", "bad")},
		"over a symlink":           {linkEntry(tar.TypeSymlink, "f", "/ROOT/canary"), fileEntry("f", "bad")},
		"mode through a symlink":   {linkEntry(tar.TypeSymlink, "f", "/ROOT/canary"), dirEntry("f", 0o777)},
		"hard link by dots":        {linkEntry(tar.TypeLink, "f", "../../canary"), fileEntry("f", "bad")},
		"hard link by a symlink":   {linkEntry(tar.TypeSymlink, "out", "/ROOT"), linkEntry(tar.TypeLink, "f", "out/canary")},
		"hard link to a symlink":   {linkEntry(tar.TypeSymlink, "s", "/ROOT/canary"), linkEntry(tar.TypeLink, "f", "s"), fileEntry("f", "bad")},
		"whiteout by dots":         {whiteout},
		"whiteout by a symlink":    {linkEntry(tar.TypeSymlink, "out", "../.."), fileEntry("out/.wh.canary", "")},
		"whiteout of the parent":   {fileEntry(".wh...", ""), fileEntry("a/.wh...", "")},
		"whiteout of itself":       {fileEntry(".wh..", ""), fileEntry(".wh.", "")},
		"opaque through a symlink": {linkEntry(tar.TypeSymlink, "out", "../.."), fileEntry("out/.wh..wh..opq", "")},
		"times through a symlink":  {dirEntry("d", 0o700), linkEntry(tar.TypeSymlink, "d", "/ROOT/dir")},
	}
	for name, entries := range tests {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, s *Store) {
				before := plantCanary(t, s)
				for i := range entries {
					entries[i].Linkname = strings.Replace(entries[i].Linkname, "/ROOT", s.root, 1)
				}
				_, err := s.Add(context.Background(), Source{Name: "hostile", Layers: []Layer{layerOf(t, entries...)}}, quiet{})
				t.Logf("add: %v", err)
				if diff := cmp.Diff(before, listTree(t, s.root, layersDir, imagesDir)); diff != "" {
					t.Error(diff)
				}
				if err != nil {
					wantNoLayer(t, s)
				}
			})
		})
	}
}

func plantCanary(t testing.TB, s *Store) map[string]string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.root, "canary"), []byte("alive"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(s.root, "dir"), 0o711); err != nil {
		t.Fatal(err)
	}
	return listTree(t, s.root, layersDir, imagesDir)
}

// listTree lists the content of a tree except some of its directories.
func listTree(t testing.TB, root string, but ...string) map[string]string {
	t.Helper()
	seen := make(map[string]string)
	err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		for _, dir := range but {
			if path == filepath.Join(root, dir) {
				return filepath.SkipDir
			}
		}
		if err != nil {
			return err
		}
		line := info.Mode().String()
		if info.Mode().IsRegular() {
			data, _ := os.ReadFile(path)
			line += " " + string(data) + " " + info.ModTime().String()
		}
		seen[path] = line
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

func wantNoLayer(t *testing.T, s *Store) {
	t.Helper()
	left, err := os.ReadDir(filepath.Join(s.root, layersDir))
	if err != nil || len(left) != 0 {
		t.Errorf("left in the store: %v, %v", left, err)
	}
}

func TestAddRefuses(t *testing.T) {
	broken := layerOf(t, fileEntry("a", "a"))
	broken.DiffID = digest.FromString("something else")
	short := layerOf(t, fileEntry("a", strings.Repeat("a", 4096)))
	open := short.Open
	short.Open = func(moved func(int)) (io.ReadCloser, error) {
		r, err := open(moved)
		return io.NopCloser(io.LimitReader(r, 2048)), err
	}
	unknown := layerOf(t, fileEntry("a", "a"))
	unknown.DiffID = "sha256:../../x"
	gone := Layer{DiffID: digest.FromString("x"), Open: func(func(int)) (io.ReadCloser, error) { return nil, errors.New("no such blob") }}
	device := layerOf(t, entry{Header: tar.Header{Name: "w", Typeflag: tar.TypeChar}})
	lost := layerOf(t, linkEntry(tar.TypeLink, "f", "not/there"))
	for name, test := range map[string]struct {
		layers []Layer
		says   string
	}{
		"other content": {[]Layer{broken}, "its content is not that of sha256:"},
		"cut":           {[]Layer{short}, "unexpected EOF"},
		"no sum":        {[]Layer{unknown}, "sum of a layer"},
		"no blob":       {[]Layer{gone}, "no such blob"},
		"whiteout node": {[]Layer{device}, "0:0"},
		"lost link":     {[]Layer{lost}, "layer 1 of 1"},
		"none":          {nil, "has 0 layers"},
		"too many":      {make([]Layer, maxLayers+1), "has 121 layers"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			_, err := s.Add(context.Background(), Source{Name: "bad", Layers: test.layers}, quiet{})
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %q", err, test.says)
			}
			if _, err := s.Find("bad"); !errdefs.IsNotFound(err) {
				t.Errorf("find: %v", err)
			}
			wantNoLayer(t, s)
		})
	}
}
