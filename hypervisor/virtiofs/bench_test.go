package virtiofs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser/vhosttest"
	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// envServe makes the test's program serve the directory that it names, in a
// separate process, so that its CPU time is the server's alone.
const envServe = "KATABOX_BENCH_SERVE"

// daemonPath is QEMU 7's virtiofsd, with which the server is compared if it is
// installed.
const daemonPath = "/usr/lib/qemu/virtiofsd"

// BenchmarkRequests measures requests one at a time, as a single process in a
// guest makes them: ns/op to the reply, and cpu-ns/op in the server.
func BenchmarkRequests(b *testing.B) {
	servers := []struct {
		name  string
		start func(testing.TB, string) (*exec.Cmd, *os.File)
	}{{"own", startOwn}, {"daemon", startDaemon}, {"here-mapped", startMapped}, {"here-private", startPrivate}}
	for _, kind := range requestKinds {
		for _, server := range servers {
			b.Run(kind.name+"/"+server.name, func(b *testing.B) {
				dir := b.TempDir()
				cmd, front := server.start(b, dir)
				defer front.Close()
				c := benchClient(b, front)
				kind.run(b, c, dir, func(ops func()) {
					cpu := cpuOf(b, cmd.Process.Pid)
					b.ResetTimer()
					ops()
					b.StopTimer()
					b.ReportMetric(float64(cpuOf(b, cmd.Process.Pid)-cpu)/float64(b.N), "cpu-ns/op")
				})
			})
		}
	}
}

// requestKinds are the kinds of requests that are measured; timed is called
// with the code to time.
var requestKinds = []struct {
	name string
	run  func(b *testing.B, c *client, dir string, timed func(ops func()))
}{
	{"getattr", func(b *testing.B, c *client, _ string, timed func(func())) {
		timed(func() {
			for range b.N {
				ask[fuse.AttrOut](c, wire.Getattr, 1, &fuse.GetAttrIn{})
			}
		})
	}},
	{"lookup", func(b *testing.B, c *client, dir string, timed func(func())) {
		benchFile(b, dir, 1)
		timed(func() {
			for range b.N {
				c.mustLookup(1, "file")
			}
		})
	}},
	{"open", func(b *testing.B, c *client, dir string, timed func(func())) {
		benchFile(b, dir, 1)
		file := c.mustLookup(1, "file").NodeId
		timed(func() {
			for range b.N {
				c.release(c.open(file, unix.O_RDWR).Fh)
			}
		})
	}},
	{"create", func(b *testing.B, c *client, _ string, timed func(func())) {
		timed(func() {
			for i := range b.N {
				c.absent(1, fmt.Sprint("new", i))
				c.release(c.create(1, fmt.Sprint("new", i), unix.O_WRONLY, 0o644).Fh)
			}
		})
	}},
	{"remove", func(b *testing.B, c *client, _ string, timed func(func())) {
		for i := range b.N {
			c.release(c.create(1, fmt.Sprint("old", i), unix.O_WRONLY, 0o644).Fh)
		}
		timed(func() {
			for i := range b.N {
				if errno, _ := call(c, wire.Unlink, 1, &fuse.InHeader{}, name(fmt.Sprint("old", i))); errno != 0 {
					b.Fatal(errno)
				}
			}
		})
	}},
	{"read-4k", func(b *testing.B, c *client, dir string, timed func(func())) { benchRead(b, c, dir, timed, 4<<10) }},
	{"read-128k", func(b *testing.B, c *client, dir string, timed func(func())) { benchRead(b, c, dir, timed, 128<<10) }},
	{"read-1m", func(b *testing.B, c *client, dir string, timed func(func())) { benchRead(b, c, dir, timed, 1<<20) }},
	{"write-4k", func(b *testing.B, c *client, dir string, timed func(func())) { benchWrite(b, c, dir, timed, 4<<10) }},
	{"write-1m", func(b *testing.B, c *client, dir string, timed func(func())) { benchWrite(b, c, dir, timed, 1<<20) }},
	{"list-1000", func(b *testing.B, c *client, dir string, timed func(func())) {
		for i := range 1000 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("entry", i)), nil, 0o600); err != nil {
				b.Fatal(err)
			}
		}
		timed(func() {
			for range b.N {
				c.list(1)
			}
		})
	}},
}

const benchFileLen = 8 << 20

func benchFile(b *testing.B, dir string, n int) {
	b.Helper()
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, n), 0o600); err != nil {
		b.Fatal(err)
	}
}

func benchRead(b *testing.B, c *client, dir string, timed func(func()), size uint32) {
	benchFile(b, dir, benchFileLen)
	file := c.mustLookup(1, "file").NodeId
	fh := c.open(file, unix.O_RDONLY).Fh
	b.SetBytes(int64(size))
	timed(func() {
		for i := range b.N {
			off := uint64(i) * uint64(size) % benchFileLen
			if n := c.transfer(wire.Read, file, &fuse.ReadIn{Fh: fh, Offset: off, Size: size}, 0, int(size)); n != int(size) {
				b.Fatalf("read %d bytes", n)
			}
		}
	})
}

func benchWrite(b *testing.B, c *client, dir string, timed func(func()), size uint32) {
	benchFile(b, dir, benchFileLen)
	file := c.mustLookup(1, "file").NodeId
	fh := c.open(file, unix.O_WRONLY).Fh
	b.SetBytes(int64(size))
	timed(func() {
		for i := range b.N {
			in := fuse.WriteIn{Fh: fh, Offset: uint64(i) * uint64(size) % benchFileLen, Size: size}
			if n := c.transfer(wire.Write, file, &in, int(size), 8); n != 8 {
				b.Fatalf("write: reply of %d bytes", n)
			}
		}
	})
}

// transfer makes a request with outData bytes of data behind it and room for
// inData in the reply, a page per descriptor as in Linux, and returns the
// length of the reply's data.
func (c *client) transfer(op wire.Op, node uint64, in any, outData, inData int) int {
	c.t.Helper()
	var p []byte
	switch in := in.(type) {
	case *fuse.ReadIn:
		p = bytesOf(in)
	case *fuse.WriteIn:
		p = bytesOf(in)
	}
	c.unique++
	h := (*fuse.InHeader)(unsafe.Pointer(&p[0]))
	*h = fuse.InHeader{Length: uint32(len(p) + outData), Opcode: uint32(op), Unique: c.unique, NodeId: node}
	copy(c.out, p)
	table := c.table[:0]
	add := func(addr uint64, n int, flags uint16) {
		table = append(table, vhosttest.Desc{Addr: addr, Len: uint32(n), Flags: flags | vhosttest.Next})
	}
	pages := func(addr uint64, n int, flags uint16) {
		for ; n > 0; n, addr = n-4096, addr+4096 {
			add(addr, min(n, 4096), flags)
		}
	}
	add(c.outAddr, len(p), 0)
	pages(c.outAddr+4096, outData, 0)
	add(c.inAddr, 16, vhosttest.Write)
	pages(c.inAddr+4096, inData, vhosttest.Write)
	table[len(table)-1].Flags &^= vhosttest.Next
	for i, d := range table {
		d.Next = uint16(i + 1)
		copy(c.indirect[16*i:], d.Encode())
	}
	c.table = table
	c.q.SetDesc(0, vhosttest.Desc{Addr: c.indirectAddr, Len: uint32(16 * len(table)), Flags: vhosttest.Indirect})
	c.q.Offer(0)
	for {
		if _, n, ok := c.q.Used(); ok {
			if status := int32(binary.NativeEndian.Uint32(c.in[4:])); status != 0 {
				c.t.Fatalf("opcode %d: %v", op, unix.Errno(-status))
			}
			return int(n) - 16
		}
		if !c.q.Wait(20 * time.Second) {
			c.t.Fatal("no reply")
		}
	}
}

func (c *client) release(fh uint64) {
	c.t.Helper()
	if errno, _ := call(c, wire.Release, 0, &fuse.ReleaseIn{Fh: fh}); errno != 0 {
		c.t.Fatalf("release: %v", errno)
	}
}

// absent looks up a name that does not exist.
func (c *client) absent(dir uint64, n string) {
	c.t.Helper()
	if out, errno := c.lookup(dir, n); errno != unix.ENOENT && out.NodeId != 0 {
		c.t.Fatalf("lookup of %q: %v, node %d", n, errno, out.NodeId)
	}
}

// list reads a directory with attributes, to its end.
func (c *client) list(dir uint64) {
	c.t.Helper()
	fh := ask[fuse.OpenOut](c, wire.Opendir, dir, &fuse.OpenIn{}).Fh
	for off := uint64(0); ; {
		errno, p := call(c, wire.Readdirplus, dir, &fuse.ReadIn{Fh: fh, Offset: off, Size: 32 << 10})
		if errno != 0 {
			c.t.Fatalf("readdirplus: %v", errno)
		}
		if len(p) == 0 {
			break
		}
		for len(p) > 0 {
			e := p[unsafe.Sizeof(fuse.EntryOut{}):]
			off = binary.NativeEndian.Uint64(e[8:])
			p = e[(24+int(binary.NativeEndian.Uint32(e[16:]))+7)&^7:]
		}
	}
	if errno, _ := call(c, wire.Releasedir, dir, &fuse.ReleaseIn{Fh: fh}); errno != 0 {
		c.t.Fatalf("releasedir: %v", errno)
	}
}

// benchClient begins a session with buffers for pages of data.
func benchClient(b *testing.B, front *os.File) *client {
	b.Helper()
	f := vhosttest.New(b, front)
	f.Handshake()
	c := &client{t: b, q: f.NewQueue(requestQueue, 1024)}
	c.out, c.outAddr = f.Mem.Alloc(clientBuffer)
	c.in, c.inAddr = f.Mem.Alloc(clientBuffer)
	c.indirect, c.indirectAddr = f.Mem.Alloc(16 * 1024)
	f.NewQueue(priorityQueue, 1024).Start(0)
	c.q.Start(0)
	// About what Linux 6.1 offers.
	in := fuse.InitIn{Major: 7, Minor: 36, MaxReadAhead: 128 << 10, Flags: 1<<31 - 1}
	ask[fuse.InitOut](c, wire.Init, 0, &in)
	return c
}

// startMapped serves dir in this process, to compare with startPrivate.
func startMapped(tb testing.TB, dir string) (*exec.Cmd, *os.File) {
	tb.Helper()
	root, err := os.Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	mounts, err := os.Open("/proc/self/ns/mnt")
	if err != nil {
		tb.Fatal(err)
	}
	s, err := Start(tb.Context(), Options{Root: root, Mounts: mounts, Policy: func(string) passthrough.Policy { return passthrough.Auto }, Special: anySpecial})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = s.Close()
		_ = root.Close()
		_ = mounts.Close()
	})
	if private {
		if err := s.Reach(self{}); err != nil {
			tb.Fatal(err)
		}
	}
	return &exec.Cmd{Process: &os.Process{Pid: os.Getpid()}}, s.Front()
}

// startPrivate serves dir in this process, which reaches the guest's memory,
// its own, as that of another one.
func startPrivate(tb testing.TB, dir string) (*exec.Cmd, *os.File) {
	tb.Helper()
	private = true
	defer func() { private = false }()
	return startMapped(tb, dir)
}

// startOwn serves dir in a separate process and returns the front end's socket.
func startOwn(tb testing.TB, dir string) (*exec.Cmd, *os.File) {
	tb.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "control")
	defer theirs.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestBenchServer$")
	cmd.Env = append(os.Environ(), envServe+"="+dir, "GOMAXPROCS=2", "GOGC=40") // as in the shim
	run(tb, cmd, theirs)
	oob := make([]byte, 64)
	_, n, _, _, err := unix.Recvmsg(fds[0], make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n == 0 {
		tb.Fatalf("no socket from the server: %v", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		tb.Fatal(err)
	}
	got, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = unix.Close(fds[0]) })
	return cmd, os.NewFile(uintptr(got[0]), "front end")
}

// TestBenchServer is startOwn's process.
func TestBenchServer(t *testing.T) {
	dir := os.Getenv(envServe)
	if dir == "" {
		t.Skip("it is BenchmarkRequests's server")
	}
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := os.Open("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(t.Context(), Options{Root: root, Mounts: mounts, Policy: func(string) passthrough.Policy { return passthrough.Auto }})
	if err != nil {
		t.Fatal(err)
	}
	front := s.Front()
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(front.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	_ = front.Close()
	<-s.Done()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// startDaemon serves dir by QEMU's daemon.
func startDaemon(tb testing.TB, dir string) (*exec.Cmd, *os.File) {
	tb.Helper()
	if info, err := os.Lstat(daemonPath); err != nil || !info.Mode().IsRegular() {
		tb.Skip(daemonPath + " is not installed")
	}
	path := filepath.Join(tb.TempDir(), "socket")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		tb.Fatal(err)
	}
	file, err := listener.File()
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = errors.Join(file.Close(), listener.Close()) }()
	cmd := exec.Command(daemonPath, "--fd=3", "-o", "source="+dir, "-o", "sandbox=chroot", "-o", "cache=auto",
		"-o", "announce_submounts", "-o", "xattr", "-o", "posix_acl", "-o", "log_level=err")
	run(tb, cmd, file)
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	front, err := conn.File()
	if err != nil {
		tb.Fatal(err)
	}
	return cmd, front
}

// run starts a server with one file, and ends it with the test.
func run(tb testing.TB, cmd *exec.Cmd, file *os.File) {
	tb.Helper()
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{file}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
}

// cpuOf returns the CPU time that a process has used (clock_getcpuclockid(3)).
func cpuOf(tb testing.TB, pid int) time.Duration {
	tb.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
