package pack

import (
	"archive/tar"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// entry is what a test looks at of an archive's entry.
type entry struct {
	Name, Link string
	Type       byte
	Mode       int64
	UID, GID   int
	Data       string
}

func entries(t *testing.T, archive io.Reader) []entry {
	t.Helper()
	var all []entry
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(time.Unix(0, 0)) || h.Uname != "" || h.Gname != "" {
			t.Errorf("%s: time %s, owner %q:%q", h.Name, h.ModTime, h.Uname, h.Gname)
		}
		all = append(all, entry{h.Name, h.Linkname, h.Typeflag, h.Mode, h.Uid, h.Gid, string(data)})
	}
}

func TestLayerHasTheDirectoriesAboveItsFiles(t *testing.T) {
	layer, err := Layer([]File{
		{Path: "home", Mode: 0o700, Dir: true, UID: 1, GID: 2},
		{Path: "home/a/b/file", Mode: 0o4755, Data: []byte("data")},
		{Path: "home/a/link", Mode: 0o755, Link: "home/a/b/file"},
		{Path: "tmp", Mode: 0o1777, Dir: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	archive, err := layer.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	want := []entry{
		{Name: "home/", Type: tar.TypeDir, Mode: 0o700, UID: 1, GID: 2},
		{Name: "home/a/", Type: tar.TypeDir, Mode: 0o755},
		{Name: "home/a/b/", Type: tar.TypeDir, Mode: 0o755},
		{Name: "home/a/b/file", Type: tar.TypeReg, Mode: 0o4755, Data: "data"},
		{Name: "home/a/link", Link: "home/a/b/file", Type: tar.TypeLink, Mode: 0o755},
		{Name: "tmp/", Type: tar.TypeDir, Mode: 0o1777},
	}
	if diff := cmp.Diff(want, entries(t, archive)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func TestFilesThatCannotBePacked(t *testing.T) {
	_, err := Layer([]File{{Path: "a\x00b"}})
	if err == nil {
		t.Error("a name with a zero byte: no error")
	}
}
