package virtiofs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
	out := inMount(t, "TestInsideSharedMapping", mountDir(t, dir, serving{policy: passthrough.Never}))
	if strings.Contains(out, "--- SKIP: TestInsideSharedMapping") {
		t.Skip("this test needs Linux 6.6")
	}
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
	p := mapDirect(t, fd)
	p[0] = 'T'
	if err := unix.Msync(p, unix.MS_SYNC); err != nil {
		t.Error(err)
	}
}

// mapDirect maps four bytes of a file, until the test's end.
func mapDirect(t *testing.T, fd int) []byte {
	t.Helper()
	p, err := unix.Mmap(fd, 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if errors.Is(err, unix.ENODEV) && !mapsDirect(t) {
		t.Skip("this kernel maps no file that it does not cache")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(p); err != nil {
			t.Error(err)
		}
	})
	return p
}

// mapsDirect reports whether this machine's kernel knows FUSE_DIRECT_IO_ALLOW_MMAP: it
// came with Linux 6.6.
func mapsDirect(t *testing.T) bool {
	t.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	release := unix.ByteSliceToString(name.Release[:])
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		t.Fatalf("release %q of the kernel: %v", release, err)
	}
	return major > 6 || major == 6 && minor >= 6
}
