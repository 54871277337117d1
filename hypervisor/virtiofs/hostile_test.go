package virtiofs

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser/vhosttest"
	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// cage is a share beside a file that no request may reach.
type cage struct {
	base, share string
}

func newCage(t testing.TB) cage {
	t.Helper()
	base := t.TempDir()
	c := cage{base: base, share: filepath.Join(base, "share")}
	for _, err := range []error{
		os.MkdirAll(filepath.Join(c.share, "d"), 0o777),
		os.WriteFile(filepath.Join(c.share, "f"), []byte("inside"), 0o666),
		os.WriteFile(filepath.Join(base, "canary"), []byte("tweet"), 0o600),
		os.Symlink("../canary", filepath.Join(c.share, "up")),
		os.Symlink(base, filepath.Join(c.share, "out")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// check checks that nothing outside of the share has changed.
func (c cage) check(t testing.TB) {
	t.Helper()
	entries, err := os.ReadDir(c.base)
	if err != nil || len(entries) != 2 {
		t.Fatalf("beside the share there are %v, %v", entries, err)
	}
	info, err := os.Stat(filepath.Join(c.base, "canary"))
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("the file beside the share: %v, %v", info, err)
	}
	if got, err := os.ReadFile(filepath.Join(c.base, "canary")); string(got) != "tweet" || err != nil {
		t.Fatalf("the file beside the share has %q, %v", got, err)
	}
}

// named is a kind of request with names: the bytes between header and names,
// and the number of names.
type named struct {
	op    wire.Op
	fixed int
	names int
}

var namedRequests = []named{
	{wire.Lookup, 0, 1}, {wire.Symlink, 0, 2}, {wire.Mknod, 16, 1}, {wire.Mkdir, 8, 1}, {wire.Unlink, 0, 1},
	{wire.Rmdir, 0, 1}, {wire.Rename, 8, 2}, {wire.Link, 8, 1}, {wire.Create, 16, 1}, {wire.Rename2, 16, 2},
	{wire.Setxattr, 16, 1}, {wire.Getxattr, 8, 1}, {wire.Removexattr, 0, 1}, {wire.Tmpfile, 16, 1},
}

// Invalid names are refused in every request with a name, and lead nowhere.
func TestHostileNames(t *testing.T) {
	cage := newCage(t)
	c := newClient(t, cage.share)
	dir, file := c.mustLookup(1, "d").NodeId, c.mustLookup(1, "f").NodeId
	names := []string{
		"", ".", "..", "/", "../canary", "d/../../canary", "/etc/passwd", "a/b", "up/", "out/canary", "x\x00y", "\x00",
		strings.Repeat("x", 256), strings.Repeat("../", 1000), strings.Repeat("n", 64<<10), strings.Repeat("/", 64<<10),
	}
	for _, r := range namedRequests {
		for _, bad := range names {
			for _, node := range []uint64{1, dir, file, 0, 999, ^uint64(0)} {
				body := make([]byte, r.fixed)
				if r.fixed >= 8 {
					binary.NativeEndian.PutUint64(body, dir) // the target directory, or a mode
				}
				for range r.names {
					body = append(append(body, bad...), 0)
				}
				c.raw(r.op, node, body)
				c.raw(r.op, node, body[:len(body)-1]) // without the final NUL
			}
		}
	}
	cage.check(t)
	for _, name := range []string{"..", ".", "d/..", "../canary"} {
		if out, errno := c.lookup(1, name); errno == 0 {
			t.Errorf("%q is found: %+v", name, out)
		}
	}
	c.mustLookup(1, "up") // a link is returned as a link: the guest follows it in its own tree
}

// raw sends those bytes after a header and returns the answer's status.
func (c *client) raw(op wire.Op, node uint64, body []byte) unix.Errno {
	c.t.Helper()
	c.unique++
	h := fuse.InHeader{Length: uint32(40 + len(body)), Opcode: uint32(op), Unique: c.unique, NodeId: node}
	got := c.send(append(bytesOf(&h), body...), 8192)
	if !op.HasReply() || len(body) > 64<<10 && len(got) == 0 { // longer than any request: it is returned
		return 0
	}
	if len(got) < 16 {
		c.t.Fatalf("opcode %d is answered by %d bytes", op, len(got))
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(got[4:])))
}

// usage is what a server might leak under a flood.
type usage struct{ threads, files, heap int }

func measure(t testing.TB) usage {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{len(threads), len(files), int(m.HeapAlloc)}
}

// Floods of forgets, interrupts and of what does not exist leave nothing.
func TestFloods(t *testing.T) {
	cage := newCage(t)
	c := newClient(t, cage.share)
	c.mustLookup(1, "f")
	batch := make([]byte, 8+16*2000)
	binary.NativeEndian.PutUint32(batch, ^uint32(0)) // more than follow
	for i := range 2000 {
		binary.NativeEndian.PutUint64(batch[8+16*i:], uint64(i)) // the root included
		binary.NativeEndian.PutUint64(batch[16+16*i:], ^uint64(0))
	}
	flood := func(n int) {
		for i := range n {
			node := uint64(i)
			c.raw(wire.Forget, node, binary.NativeEndian.AppendUint64(nil, ^uint64(0)))
			c.raw(wire.Interrupt, 0, binary.NativeEndian.AppendUint64(nil, node))
			c.raw(wire.Read, node, make([]byte, 40))
			c.raw(wire.Release, node, binary.NativeEndian.AppendUint64(make([]byte, 0, 24), node))
			if i%50 == 0 {
				c.raw(wire.BatchForget, 0, batch)
			}
		}
	}
	flood(200)
	before := measure(t)
	flood(3000)
	after := measure(t)
	if after.files > before.files+4 || after.heap > before.heap+2<<20 || after.threads > before.threads+maxThreads {
		t.Errorf("a flood leaves %+v, there were %+v", after, before)
	}
	c.mustLookup(1, "f")
	cage.check(t)
}

// A guest that opens without end gets an error, and the server stays usable.
func TestOpenWithoutEnd(t *testing.T) {
	cage := newCage(t)
	_, f := serveFew(t, cage.share)
	c := clientOf(t, f)
	node := c.mustLookup(1, "f").NodeId
	var last unix.Errno
	for range 4096 {
		if last, _ = call(c, wire.Open, node, &fuse.OpenIn{}); last != 0 {
			break
		}
	}
	if last != unix.ENFILE { // EMFILE would be the process's limit
		t.Errorf("the last open of many: %v", last)
	}
	if own, err := os.Open(os.DevNull); err != nil {
		t.Errorf("the process can open no file: %v", err)
	} else {
		_ = own.Close()
	}
	if _, errno := c.lookup(1, "d"); errno != 0 {
		t.Errorf("lookup with all files open: %v", errno)
	}
}

// serveFew serves a directory in a process that may have 400 more files open.
func serveFew(t *testing.T, dir string) (*Server, *vhosttest.FrontEnd) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: min(was.Cur, uint64(measure(t).files+400)), Max: was.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	})
	return serveDir(t, dir, passthrough.Auto)
}

// clientOf begins a session with a front end.
func clientOf(t *testing.T, f *vhosttest.FrontEnd) *client {
	t.Helper()
	f.Handshake()
	c := &client{t: t, q: f.NewQueue(requestQueue, 128)}
	c.out, c.outAddr = f.Mem.Alloc(clientBuffer)
	c.in, c.inAddr = f.Mem.Alloc(clientBuffer)
	c.q.Start(0)
	var in fuse.InitIn
	in.Major, in.Minor, in.Flags = 7, 38, ^uint32(0)
	ask[fuse.InitOut](c, wire.Init, 0, &in)
	return c
}

// The same chain offered several times, and chains in any order, are served as
// often as they were offered; the guest corrupts only its own memory.
func TestDuplicatedChains(t *testing.T) {
	cage := newCage(t)
	_, f := serveDir(t, cage.share, passthrough.Auto)
	c := clientOf(t, f)
	h := fuse.InHeader{Length: 42, Opcode: uint32(wire.Lookup), Unique: 1, NodeId: 1}
	copy(c.out, append(bytesOf(&h), name("f")...))
	for i := 2; i < 8; i += 2 { // three chains on the same memory
		c.q.SetDesc(i, vhosttest.Desc{Addr: c.outAddr, Len: 42, Flags: vhosttest.Next, Next: uint16(i + 1)})
		c.q.SetDesc(i+1, vhosttest.Desc{Addr: c.inAddr, Len: 4096, Flags: vhosttest.Write})
	}
	heads := []uint16{6, 2, 2, 4, 2, 6, 6, 4, 2, 2, 2, 2}
	for range 20 {
		c.q.Offer(heads...)
		for range heads {
			awaitUsed(t, c.q)
		}
	}
	c.mustLookup(1, "d")
	cage.check(t)
}

// FuzzNamed sends each request that has names, well-formed except for arbitrary
// names and numbers.
func FuzzNamed(f *testing.F) {
	for i := range namedRequests {
		f.Add(byte(i)|0x80, byte(1), "f", "d", []byte{1, 0, 0, 0, 0, 0, 0, 0})
		f.Add(byte(i), byte(2), "..", "../../canary", []byte{2})
		f.Add(byte(i), byte(3), "up", "out", []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	}
	f.Fuzz(func(t *testing.T, which, node byte, first, second string, fixed []byte) {
		private = which >= 0x80
		defer func() { private = false }()
		r := namedRequests[int(which&0x7f)%len(namedRequests)]
		cage := newCage(t)
		c := newClient(t, cage.share)
		for _, n := range []string{"d", "f", "up", "out"} {
			c.mustLookup(1, n)
		}
		body := make([]byte, r.fixed)
		copy(body, fixed)
		body = append(append(body, first...), 0)
		if r.names > 1 {
			body = append(append(body, second...), 0)
		}
		if len(body) > 60<<10 {
			return
		}
		c.raw(r.op, uint64(node), body)
		c.raw(wire.Lookup, 1, append([]byte(first), 0))
		cage.check(t)
	})
}

// FuzzFile sends each request about an open file, well-formed except for
// arbitrary numbers.
func FuzzFile(f *testing.F) {
	kinds := []wire.Op{
		wire.Read, wire.Write, wire.Setattr, wire.Getattr, wire.Fallocate, wire.Lseek, wire.CopyFileRange, wire.Fsync, wire.Flush,
		wire.Readdir, wire.Readdirplus, wire.Release, wire.Releasedir, wire.Statx, wire.Fsyncdir, wire.Syncfs, wire.Listxattr,
	}
	for i := range kinds {
		f.Add(byte(i)|0x80, byte(2), []byte{1, 0, 0, 0, 0, 0, 0, 0})
		f.Add(byte(i), byte(3), []byte{1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff})
	}
	f.Fuzz(func(t *testing.T, which, node byte, numbers []byte) {
		private = which >= 0x80
		defer func() { private = false }()
		op := kinds[int(which&0x7f)%len(kinds)]
		cage := newCage(t)
		c := newClient(t, cage.share)
		file, dir := c.mustLookup(1, "f").NodeId, c.mustLookup(1, "d").NodeId
		c.open(file, unix.O_RDWR)
		ask[fuse.OpenOut](c, wire.Opendir, dir, &fuse.OpenIn{})
		body := make([]byte, 88)
		copy(body, numbers)
		if op == wire.Fallocate { // bound offset and length: the test must not fill the disk
			clear(body[11:16])
			clear(body[19:24])
		}
		c.raw(op, uint64(node), body)
		c.raw(op, uint64(node), body[:len(numbers)%88])
		cage.check(t)
	})
}

// knownEnv is how many files the guest of TestManyFiles knows.
const knownEnv = "KATABOX_TEST_FILES"

// A guest that has seen many files costs a bounded number of bytes for each, and
// no descriptors beyond the limit.
func TestManyFiles(t *testing.T) {
	count := 20000
	if text := os.Getenv(knownEnv); text != "" {
		n, err := parseCount(text)
		if err != nil {
			t.Fatal(err)
		}
		count = n
	}
	cage := newCage(t)
	if err := unix.Mount("katabox-many", cage.share, "tmpfs", 0, "size=64m,nr_inodes=0"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(cage.share, unix.MNT_DETACH) })
	if err := makeFiles(cage.share, count); err != nil {
		t.Fatal(err)
	}
	_, f := serveFew(t, cage.share)
	c := clientOf(t, f)
	before, pss, began := measure(t), pssOf(t), time.Now()
	known := make([]uint64, 0, count+count/filesEach+1)
	for i := 0; i < count; {
		dir := c.mustLookup(1, fileName(i/filesEach)).NodeId
		known = append(known, dir)
		for j := 0; j < filesEach && i < count; j, i = j+1, i+1 {
			known = append(known, c.mustLookup(dir, fileName(j)).NodeId)
		}
	}
	after := measure(t)
	each := (after.heap - before.heap) / count
	t.Logf("%d files in %.1f s: %d bytes of heap each, PSS %d KiB more, %d descriptors more",
		count, time.Since(began).Seconds(), each, pssOf(t)-pss, after.files-before.files)
	if each > 600 {
		t.Errorf("each known file costs %d bytes", each)
	}
	if more := after.files - before.files; more > 200 {
		t.Errorf("%d descriptors more are open", more)
	}
	for _, node := range known {
		c.raw(wire.Forget, node, binary.NativeEndian.AppendUint64(nil, 1))
	}
	forgot := measure(t)
	t.Logf("when the guest has forgotten them: %d KiB of heap more than before, PSS %d KiB more", (forgot.heap-before.heap)>>10, pssOf(t)-pss)
	if left := forgot.heap - before.heap; left > (after.heap-before.heap)/2 {
		t.Errorf("%d bytes of %d are left for files that the guest has forgotten", left, after.heap-before.heap)
	}
}
