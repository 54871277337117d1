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

// A guest that caches no files may map them for all the same, if its kernel can.
func TestMayMapDirect(t *testing.T) {
	const mapDirect = fuse.CAP_DIRECT_IO_ALLOW_MMAP >> 32
	for _, test := range []struct {
		policy       passthrough.Policy
		flags, upper uint32
		want         uint32
	}{
		{passthrough.Never, ^uint32(0), ^uint32(0), mapDirect},
		{passthrough.Metadata, ^uint32(0), mapDirect, mapDirect},
		{passthrough.Never, ^uint32(0), 0, 0},
		{passthrough.Never, ^uint32(fuse.CAP_INIT_EXT), mapDirect, 0},
		{passthrough.Auto, ^uint32(0), ^uint32(0), 0},
	} {
		_, f := serveDir(t, t.TempDir(), test.policy)
		c := rawClientOf(t, f)
		out := ask[fuse.InitOut](c, wire.Init, 0, &fuse.InitIn{Major: 7, Minor: 39, Flags: test.flags, Flags2: test.upper})
		if out.Flags2 != test.want || out.Flags&^test.flags != 0 {
			t.Errorf("%+v: flags %#x and %#x, want %#x", test, out.Flags, out.Flags2, test.want)
		}
	}
}

// What is written to a shared mapping of a file that is not cached is in the file.
func TestSharedMappingWithoutCache(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	inMount(t, "TestInsideSharedMapping", mountDir(t, dir, serving{policy: passthrough.Never}))
	if text, err := os.ReadFile(path); string(text) != "Text" || err != nil {
		t.Errorf("the file has %q, %v", text, err)
	}
}

func TestInsideSharedMapping(t *testing.T) {
	fd, err := unix.Open(filepath.Join(inside(t), "file"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	p, err := unix.Mmap(fd, 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	p[0] = 'T'
	if err := unix.Msync(p, unix.MS_SYNC); err != nil {
		t.Error(err)
	}
	if err := unix.Munmap(p); err != nil {
		t.Error(err)
	}
}
