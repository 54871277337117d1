package virtiofs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// appendOnly is FS_APPEND_FL of linux/fs.h, which chattr(1) sets with +a.
const appendOnly = 0x20

// setAppendOnly makes a file one that can only be appended to, until the test's end.
func setAppendOnly(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	before, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(before|appendOnly))
	}
	if err != nil {
		t.Skipf("this test needs append-only files: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(before)); err != nil {
			t.Error(err)
		}
		_ = f.Close()
	})
}

// An append-only file of the host is opened to append, and again when the guest is
// loaded elsewhere, but for nothing else. The guest may not cache what it may read and
// write: it would write whole pages back.
func TestAppendOnly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	if err := os.WriteFile(path, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	setAppendOnly(t, path)
	m := newMachine(t, dir)
	m.boot()
	log := m.mustLookup(1, "log").NodeId
	for _, flags := range []uint32{unix.O_WRONLY, unix.O_RDWR, unix.O_WRONLY | unix.O_TRUNC, unix.O_WRONLY | unix.O_APPEND | unix.O_TRUNC} {
		if errno, _ := call(m.client, wire.Open, log, &fuse.OpenIn{Flags: flags}); errno != unix.EPERM {
			t.Errorf("open with flags %#o: %v, want EPERM", flags, errno)
		}
	}
	write := func(m *machine, fh uint64, text string) {
		in := &fuse.WriteIn{Fh: fh, Size: uint32(len(text)), Flags: unix.O_APPEND}
		if out := ask[fuse.WriteOut](m.client, wire.Write, 0, in, []byte(text)); int(out.Size) != len(text) {
			t.Errorf("wrote %d of %d bytes", out.Size, len(text))
		}
	}
	both := m.open(log, unix.O_RDWR|unix.O_APPEND)
	if both.OpenFlags&fuse.FOPEN_DIRECT_IO == 0 {
		t.Error("the guest may cache a file that it can only append to")
	}
	one := m.open(log, unix.O_WRONLY|unix.O_APPEND)
	write(m, one.Fh, "b")
	write(m, both.Fh, "c")
	back := &fuse.WriteIn{Fh: both.Fh, Size: 1, WriteFlags: fuse.WRITE_CACHE}
	if errno, _ := call(m.client, wire.Write, 0, back, []byte("x")); errno != unix.EPERM {
		t.Errorf("write back a page of a mapping: %v, want EPERM", errno)
	}
	state := m.mustSave()
	again := newMachine(t, dir)
	if err := again.load(state); err != nil {
		t.Fatal(err)
	}
	again.resume()
	write(again, one.Fh, "d")
	if text, err := os.ReadFile(path); string(text) != "abcd" || err != nil {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// What is written to a shared mapping of an append-only file is lost, and the error says so.
func TestMappedAppendOnly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	setAppendOnly(t, path)
	inMount(t, "TestInsideMappedAppendOnly", mountDir(t, dir, serving{policy: passthrough.Never}))
	if text, err := os.ReadFile(path); string(text) != "text" || err != nil {
		t.Errorf("the file has %q, %v", text, err)
	}
}

func TestInsideMappedAppendOnly(t *testing.T) {
	fd, err := unix.Open(filepath.Join(inside(t), "file"), unix.O_RDWR|unix.O_APPEND|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	p := mapDirect(t, fd)
	p[0] = 'T'
	if err := unix.Msync(p, unix.MS_SYNC); !errors.Is(err, unix.EPERM) {
		t.Errorf("msync: %v, want EPERM", err)
	}
	p[0] = 'X'
	if err := unix.Fsync(fd); !errors.Is(err, unix.EPERM) {
		t.Errorf("fsync: %v, want EPERM", err)
	}
}
