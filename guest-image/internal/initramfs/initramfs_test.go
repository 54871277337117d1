package initramfs

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pierrec/lz4/v4"
	"github.com/u-root/u-root/pkg/cpio"
)

// add is one call on a tree.
type add func(*Tree) error

func dir(name string, perm uint32) add { return func(t *Tree) error { return t.Dir(name, perm) } }
func file(name, data string) add {
	return func(t *Tree) error { return t.File(name, 0o644, []byte(data)) }
}
func char(name string, major, minor uint32) add {
	return func(t *Tree) error { return t.CharDevice(name, 0o600, major, minor) }
}

func tree(t *testing.T, adds ...add) *Tree {
	t.Helper()
	out := &Tree{}
	for _, add := range adds {
		if err := add(out); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func link(name, target string) add { return func(t *Tree) error { return t.Symlink(name, target) } }

func archive(t *testing.T, adds ...add) []byte {
	t.Helper()
	out, err := tree(t, adds...).Archive()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// record is an entry as an independent reader of the format sees it.
type record struct {
	Name                                string
	Mode, Ino, UID, GID, NLink, MTime   uint64
	Major, Minor, RMajor, RMinor, Bytes uint64
	Data                                string
}

func read(t *testing.T, archive []byte) []record {
	t.Helper()
	r := cpio.Newc.Reader(bytes.NewReader(archive))
	var out []record
	for {
		rec, err := r.ReadRecord()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(io.NewSectionReader(rec, 0, int64(rec.FileSize)))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, record{rec.Name, rec.Mode, rec.Ino, rec.UID, rec.GID, rec.NLink, rec.MTime,
			rec.Major, rec.Minor, rec.Rmajor, rec.Rminor, rec.FileSize, string(data)})
	}
}

func TestArchive(t *testing.T) {
	got := read(t, archive(t,
		file("lib/modules/a.ko", "module"),
		file("/init", "agent"),
		char("dev/console", 5, 1),
		dir("tmp", 0o1777),
		link("tmp/link", "../init"),
		file("empty", ""),
		dir("lib", 0o700)))
	want := []record{
		{Name: "dev", Mode: 0o40755, Ino: 1, NLink: 2},
		{Name: "dev/console", Mode: 0o20600, Ino: 2, NLink: 1, RMajor: 5, RMinor: 1},
		{Name: "empty", Mode: 0o100644, Ino: 3, NLink: 1},
		{Name: "init", Mode: 0o100644, Ino: 4, NLink: 1, Bytes: 5, Data: "agent"},
		{Name: "lib", Mode: 0o40700, Ino: 5, NLink: 2},
		{Name: "lib/modules", Mode: 0o40755, Ino: 6, NLink: 2},
		{Name: "lib/modules/a.ko", Mode: 0o100644, Ino: 7, NLink: 1, Bytes: 6, Data: "module"},
		{Name: "tmp", Mode: 0o41777, Ino: 8, NLink: 2},
		{Name: "tmp/link", Mode: 0o120777, Ino: 9, NLink: 1, Bytes: 7, Data: "../init"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestArchiveIsTheSameInAnyOrder(t *testing.T) {
	adds := []add{file("a/b", "1"), char("dev/null", 1, 3), dir("a", 0o755), file("c", strings.Repeat("x", 4099))}
	first := archive(t, adds...)
	for range 20 {
		adds = append(adds[1:], adds[0])
		if !bytes.Equal(first, archive(t, adds...)) {
			t.Fatal("the same tree gives other bytes")
		}
	}
	if len(first)%blockSize != 0 {
		t.Errorf("%d bytes are no whole number of blocks", len(first))
	}
}

func TestAddErrors(t *testing.T) {
	for _, tc := range []struct {
		name string
		adds []add
		want string
	}{
		{"the root", []add{dir("/", 0o755)}, "not a path"},
		{"above the root", []add{dir("../..", 0o755)}, "not a path"},
		{"NUL", []add{file("a\x00b", "")}, "not a path"},
		{"twice", []add{file("a", ""), file("./a", "")}, "exists already"},
		{"a node twice", []add{char("a", 1, 3), char("a", 1, 5)}, "exists already"},
		{"a file as directory", []add{file("a", ""), dir("a", 0o755)}, "exists already"},
		{"a directory as file", []add{dir("a", 0o755), file("a", "")}, "exists already"},
		{"below a file", []add{file("a", ""), file("a/b/c", "")}, "not a directory"},
		{"below a node", []add{char("a", 1, 3), file("a/b", "")}, "not a directory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var tr Tree
			var err error
			for _, add := range tc.adds {
				err = add(&tr)
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestCompressLZ4(t *testing.T) {
	plain := archive(t, file("init", strings.Repeat("agent", 3<<20)))
	packed, err := CompressLZ4(plain)
	if err != nil {
		t.Fatal(err)
	}
	again, err := CompressLZ4(plain)
	if err != nil || !bytes.Equal(packed, again) {
		t.Errorf("the same archive gives other bytes: %v", err)
	}
	if !bytes.HasPrefix(packed, []byte{2, 0x21, 0x4c, 0x18}) {
		t.Errorf("starts with % x, not with the legacy frame's magic", packed[:4])
	}
	got, err := io.ReadAll(lz4.NewReader(bytes.NewReader(packed)))
	if err != nil || !bytes.Equal(got, plain) {
		t.Errorf("%d bytes come back of %d: %v", len(got), len(plain), err)
	}
}
