package virtiofs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser/vhosttest"
	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// machine is a guest's machine with a share, which can be stopped, saved, and
// loaded into another one.
type machine struct {
	*client
	server *Server
	front  *vhosttest.FrontEnd
}

// newMachine serves a directory to a machine that has not started.
func newMachine(t *testing.T, dir string) *machine {
	t.Helper()
	return newMachineWith(t, dir, passthrough.Auto)
}

// newMachineWith is newMachine with a policy.
func newMachineWith(t *testing.T, dir string, policy passthrough.Policy) *machine {
	t.Helper()
	s, f := serveDir(t, dir, policy)
	f.Handshake()
	c := &client{t: t, q: f.NewQueue(requestQueue, 128)}
	c.out, c.outAddr = f.Mem.Alloc(clientBuffer)
	c.in, c.inAddr = f.Mem.Alloc(clientBuffer)
	return &machine{client: c, server: s, front: f}
}

// boot starts the machine, and its session.
func (m *machine) boot() {
	m.t.Helper()
	m.q.Start(0)
	in := &fuse.InitIn{Major: 7, Minor: 38, Flags: ^uint32(0)}
	ask[fuse.InitOut](m.client, wire.Init, 0, in)
}

// transfer begins one as QEMU does, and returns the end of the pipe that remains.
func (m *machine) transfer(direction uint32) *os.File {
	m.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		m.t.Fatal(err)
	}
	theirs, ours := w, r
	if direction == 1 {
		theirs, ours = r, w
	}
	m.t.Cleanup(func() { _ = ours.Close() })
	if err := m.front.Send(vhosttest.SetDeviceStateFD, 0, vhosttest.State(direction, 0), int(theirs.Fd())); err != nil {
		m.t.Fatal(err)
	}
	_ = theirs.Close()
	if p, err := m.front.Receive(vhosttest.SetDeviceStateFD); err != nil || binary.LittleEndian.Uint64(p) != 1<<8 {
		m.t.Fatalf("reply %x, %v", p, err)
	}
	return ours
}

// result asks for a transfer's result, and returns the server's error.
func (m *machine) result() error {
	m.t.Helper()
	failed := binary.LittleEndian.Uint64(m.front.Get(vhosttest.CheckDeviceState, nil)) != 0
	err := m.server.StateErr()
	if failed != (err != nil) {
		m.t.Fatalf("the front end is told failed=%v, the owner %v", failed, err)
	}
	return err
}

// save stops the machine and saves its state.
func (m *machine) save() ([]byte, error) {
	m.t.Helper()
	m.q.Stop()
	pipe := m.transfer(0)
	state, err := io.ReadAll(pipe)
	if err != nil {
		m.t.Fatal(err)
	}
	return state, m.result()
}

// mustSave is save for a guest that can be saved.
func (m *machine) mustSave() []byte {
	m.t.Helper()
	state, err := m.save()
	if err != nil {
		m.t.Fatal(err)
	}
	return state
}

// load loads a state into a machine that has not started.
func (m *machine) load(state []byte) error {
	m.t.Helper()
	pipe := m.transfer(1)
	if _, err := pipe.Write(state); err != nil && !errors.Is(err, unix.EPIPE) {
		m.t.Fatal(err)
	}
	_ = pipe.Close()
	return m.result()
}

// resume starts a machine that was loaded, or continues one that was saved.
func (m *machine) resume() *machine {
	m.t.Helper()
	m.q.Start(m.q.Stop())
	return m
}

// restored returns a machine with a copy of a share, loaded and started.
func restored(t *testing.T, share string, state []byte) *machine {
	t.Helper()
	m := newMachine(t, copyOf(t, share))
	if err := m.load(state); err != nil {
		t.Fatal(err)
	}
	return m.resume()
}

// copyOf copies a share: other inodes, the same paths.
func copyOf(t *testing.T, share string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", share, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return to
}

func (m *machine) mkdir(dir uint64, n string) uint64 {
	m.t.Helper()
	return ask[fuse.EntryOut](m.client, wire.Mkdir, dir, &fuse.MkdirIn{Mode: 0o755}, name(n)).NodeId
}

func (m *machine) opendir(node uint64) uint64 {
	m.t.Helper()
	return ask[fuse.OpenOut](m.client, wire.Opendir, node, &fuse.OpenIn{}).Fh
}

// names returns what a directory's handle lists.
func (m *machine) names(fh uint64) string {
	m.t.Helper()
	errno, p := call(m.client, wire.Readdir, 0, &fuse.ReadIn{Fh: fh, Size: 4096})
	if errno != 0 {
		m.t.Fatal(errno)
	}
	return string(p)
}

func (m *machine) errno(node uint64) unix.Errno {
	m.t.Helper()
	errno, _ := call(m.client, wire.Getattr, node, &fuse.GetAttrIn{})
	return errno
}

func (m *machine) rename(from uint64, old string, to uint64, now string) {
	m.t.Helper()
	ask[struct{}](m.client, wire.Rename2, from, &fuse.RenameIn{Newdir: to}, name(old), name(now))
}

// TestStateMoves saves a guest's machine and loads it into another one, with a
// copy of the share: numbers and handles mean the same files.
func TestStateMoves(t *testing.T) {
	share := t.TempDir()
	m := newMachine(t, share)
	m.boot()
	a := m.mkdir(1, "a")
	b := m.mkdir(a, "b")
	f := m.create(b, "file", unix.O_RDWR|unix.O_TRUNC, 0o640)
	m.write(f.Fh, 0, "content")
	other := m.create(1, "other", unix.O_WRONLY, 0o600)
	moved := m.create(1, "old", unix.O_RDWR, 0o600)
	late := m.mkdir(1, "late")
	m.rename(1, "old", late, "new") // below a directory with a higher number
	m.write(moved.Fh, 0, "moved")
	gone := m.create(1, "gone", unix.O_RDWR, 0o600)
	m.release(gone.Fh)
	ask[struct{}](m.client, wire.Unlink, 1, &fuse.InHeader{}, name("gone"))
	link := ask[fuse.EntryOut](m.client, wire.Symlink, 1, &fuse.InHeader{}, name("link"), name("a/b"))
	dir := m.opendir(b)
	root := m.opendir(1)
	m.release(other.Fh)
	state := m.mustSave()

	r := restored(t, share, state)
	if got := r.read(f.Fh, 0, 100); got != "content" {
		t.Errorf("the open file has %q", got)
	}
	r.write(f.Fh, 7, "s")
	if got := r.read(f.Fh, 0, 100); got != "contents" {
		t.Errorf("after a write it has %q", got)
	}
	if errno, _ := call(r.client, wire.Read, 0, &fuse.ReadIn{Fh: other.Fh, Size: 1}); errno != unix.EBADF {
		t.Errorf("a closed file: %v", errno)
	}
	if got := r.read(moved.Fh, 0, 100); got != "moved" {
		t.Errorf("the renamed file has %q", got)
	}
	if got := r.names(dir); !strings.Contains(got, "file") {
		t.Errorf("the open directory lists %q", got)
	}
	if got := r.names(root); !strings.Contains(got, "other") {
		t.Errorf("the open root lists %q", got)
	}
	for want, at := range map[uint64]struct {
		dir  uint64
		name string
	}{a: {1, "a"}, b: {a, "b"}, f.NodeId: {b, "file"}, other.NodeId: {1, "other"}, moved.NodeId: {late, "new"}, link.NodeId: {1, "link"}} {
		if got := r.mustLookup(at.dir, at.name).NodeId; got != want {
			t.Errorf("%s is node %d, was %d", at.name, got, want)
		}
		if errno := r.errno(want); errno != 0 {
			t.Errorf("node %d: %v", want, errno)
		}
	}
	if errno := r.errno(gone.NodeId); errno != unix.ESTALE {
		t.Errorf("a deleted file: %v", errno)
	}
	fresh := r.create(a, "fresh", unix.O_RDWR, 0o600)
	if fresh.NodeId <= link.NodeId || fresh.Fh != other.Fh {
		t.Errorf("a new file is node %d, handle %d; the free handle is %d", fresh.NodeId, fresh.Fh, other.Fh)
	}
	r.release(f.Fh)
	if errno := r.errno(f.NodeId); errno != 0 {
		t.Errorf("the file after its release: %v", errno)
	}
	m.resume()
	if got := m.read(f.Fh, 0, 100); got != "content" {
		t.Errorf("the saved machine's file has %q", got)
	}
}

// The same works with the guest's memory reached in its owner, and again with
// what was loaded.
func TestStateMovesOn(t *testing.T) {
	private = true
	defer func() { private = false }()
	share := t.TempDir()
	m := newMachine(t, share)
	m.boot()
	f := m.create(m.mkdir(1, "d"), "f", unix.O_RDWR, 0o600)
	m.write(f.Fh, 0, "text")
	first := m.mustSave()
	second := restored(t, share, first)
	state := second.mustSave()
	if !bytes.Equal(first, state) {
		t.Errorf("the second state has %d bytes, the first %d", len(state), len(first))
	}
	if got := restored(t, share, state).read(f.Fh, 0, 100); got != "text" {
		t.Errorf("read %q", got)
	}
}

// A forget in the new machine counts what was looked up in the old one.
func TestStateKeepsLookups(t *testing.T) {
	share := t.TempDir()
	m := newMachine(t, share)
	m.boot()
	d := m.mkdir(1, "d")
	f := m.mkdir(d, "f")
	m.mustLookup(1, "d")
	r := restored(t, share, m.mustSave())
	forget := func(node, count uint64) {
		in := fuse.ForgetIn{Nlookup: count}
		in.Opcode, in.NodeId = uint32(wire.Forget), node
		r.send(bytesOf(&in), 16)
	}
	forget(d, 1)
	if errno := r.errno(d); errno != 0 {
		t.Errorf("looked up twice, forgotten once: %v", errno)
	}
	forget(d, 1)
	if errno := r.errno(f); errno != 0 {
		t.Errorf("below what was forgotten: %v", errno)
	}
	forget(f, 1)
	if errno := r.errno(d); errno != unix.ESTALE {
		t.Errorf("what was forgotten: %v", errno)
	}
}

// What the guest has open must have a name when it is saved.
func TestStateOfNamelessFile(t *testing.T) {
	for what, lose := range map[string]struct {
		name string
		do   func(t *testing.T, m *machine, share string, d uint64)
	}{
		"deleted": {"d/f", func(_ *testing.T, m *machine, _ string, d uint64) {
			ask[struct{}](m.client, wire.Unlink, d, &fuse.InHeader{}, name("f"))
		}},
		"deleted on the host": {"d/f", func(t *testing.T, _ *machine, share string, _ uint64) {
			if err := os.Remove(filepath.Join(share, "d", "f")); err != nil {
				t.Fatal(err)
			}
		}},
		"replaced on the host": {"d/f", func(t *testing.T, _ *machine, share string, _ uint64) {
			at := filepath.Join(share, "d", "f")
			if err := errors.Join(os.WriteFile(at+"2", nil, 0o600), os.Rename(at+"2", at)); err != nil {
				t.Fatal(err)
			}
		}},
		"its directory moved on the host": {"e/f", func(t *testing.T, _ *machine, share string, _ uint64) {
			if err := os.Rename(filepath.Join(share, "d"), filepath.Join(share, "e")); err != nil {
				t.Fatal(err)
			}
		}},
		"made without a name": {"d/#", func(_ *testing.T, m *machine, _ string, d uint64) {
			ask[fuse.CreateOut](m.client, wire.Tmpfile, d, &fuse.CreateIn{Flags: unix.O_RDWR, Mode: unix.S_IFREG | 0o600})
		}},
	} {
		t.Run(what, func(t *testing.T) {
			share := t.TempDir()
			m := newMachine(t, share)
			m.boot()
			d := m.mkdir(1, "d")
			f := m.create(d, "f", unix.O_RDWR, 0o600)
			lose.do(t, m, share, d)
			_, err := m.save()
			if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), `"`+lose.name) {
				t.Fatalf("save: %v, want an error about %s", err, lose.name)
			}
			m.resume()
			m.write(f.Fh, 0, "the machine continues")
		})
	}
}

// What is missing in the copy is stale, unless it is open.
func TestStateOfMissingFile(t *testing.T) {
	share := t.TempDir()
	m := newMachine(t, share)
	m.boot()
	d := m.mkdir(1, "d")
	below := m.mkdir(d, "below")
	f := m.create(1, "f", unix.O_RDWR, 0o600)
	m.release(f.Fh)
	m.create(1, "kept", unix.O_RDWR, 0o600)
	state := m.mustSave()
	other := copyOf(t, share)
	if err := errors.Join(os.RemoveAll(filepath.Join(other, "d")), os.Symlink("/etc", filepath.Join(other, "d")),
		os.Remove(filepath.Join(other, "f")), os.Mkdir(filepath.Join(other, "f"), 0o755)); err != nil {
		t.Fatal(err)
	}
	r := newMachine(t, other)
	if err := r.load(state); err != nil {
		t.Fatal(err)
	}
	r.resume()
	for _, node := range []uint64{d, below, f.NodeId} {
		if errno := r.errno(node); errno != unix.ESTALE {
			t.Errorf("node %d: %v, want ESTALE", node, errno)
		}
	}
	if got := r.mustLookup(1, "f").NodeId; got == f.NodeId {
		t.Error("what is another kind of file has the old number")
	}
	if err := os.Remove(filepath.Join(other, "kept")); err != nil {
		t.Fatal(err)
	}
	r = newMachine(t, other)
	if err := r.load(state); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), `"kept"`) {
		t.Fatalf("load without an open file: %v", err)
	}
	if r.q.Starts(0) {
		t.Error("a machine starts whose files were not loaded")
	}
}

// A state is loaded only before the guest knows anything, and only if it is
// whole.
func TestStateRefused(t *testing.T) {
	share := t.TempDir()
	m := newMachine(t, share)
	m.boot()
	f := m.create(1, "f", unix.O_RDWR, 0o600)
	m.write(f.Fh, 0, "x")
	state := m.mustSave()
	if err := m.load(state); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("load into a machine that runs: %v", err)
	}
	r := newMachine(t, share)
	for _, wrong := range [][]byte{nil, state[:len(state)-1], append(bytes.Clone(state), 0), bytes.Repeat(state, 2), []byte("nonsense, but long enough")} {
		if err := r.load(wrong); err == nil {
			t.Errorf("%d bytes of %d were loaded", len(wrong), len(state))
		}
	}
	if _, err := r.save(); err == nil {
		t.Error("a state that was not loaded was saved")
	}
	if err := r.load(state); err != nil {
		t.Fatalf("after those: %v", err)
	}
	if got := r.resume().read(f.Fh, 0, 10); got != "x" {
		t.Errorf("read %q", got)
	}
}

// Mounts in the share have other numbers afterwards, and are submounts again.
func TestStateOfMounts(t *testing.T) {
	share, other := t.TempDir(), t.TempDir()
	fill := func(dir string) {
		vol := filepath.Join(dir, "vol")
		if err := os.Mkdir(vol, 0o755); err != nil {
			t.Fatal(err)
		}
		mountTmpfs(t, vol)
		if err := os.WriteFile(filepath.Join(vol, "f"), []byte("mounted"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fill(share)
	m := newMachine(t, share)
	m.boot()
	vol := m.mustLookup(1, "vol")
	f := m.mustLookup(vol.NodeId, "f")
	fh := m.open(f.NodeId, unix.O_RDONLY).Fh
	state := m.mustSave()
	fill(other)
	r := newMachine(t, other)
	if err := r.load(state); err != nil {
		t.Fatal(err)
	}
	r.resume()
	if got := r.read(fh, 0, 100); got != "mounted" {
		t.Errorf("read %q", got)
	}
	again := r.mustLookup(1, "vol")
	if again.NodeId != vol.NodeId || again.Flags&fuse.ATTR_SUBMOUNT == 0 {
		t.Errorf("the mount is node %d, flags %#x; want %d", again.NodeId, again.Flags, vol.NodeId)
	}
	r.release(fh)
	if err := r.server.Drop(t.Context(), "vol"); err != nil {
		t.Fatal(err)
	}
	if errno := r.errno(f.NodeId); errno != unix.ESTALE {
		t.Errorf("below a dropped mount: %v", errno)
	}
}

// Passing files are in no state, whether they are still there or not: the guest finds
// what it has open closed, and may release it.
func TestStateOfPassingFiles(t *testing.T) {
	share := t.TempDir()
	for _, name := range []string{"stays", "goes"} {
		if err := os.WriteFile(filepath.Join(share, name), []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	policy := passthrough.Auto
	policy.Passing = true
	m := newMachineWith(t, share, policy)
	m.boot()
	stays, goes := m.mustLookup(1, "stays"), m.mustLookup(1, "goes")
	open := []uint64{m.open(stays.NodeId, unix.O_RDONLY).Fh, m.open(goes.NodeId, unix.O_RDONLY).Fh}
	if err := os.Remove(filepath.Join(share, "goes")); err != nil {
		t.Fatal(err)
	}
	state := m.mustSave()
	r := newMachineWith(t, t.TempDir(), policy)
	if err := r.load(state); err != nil {
		t.Fatal(err)
	}
	r.resume()
	for i, node := range []uint64{stays.NodeId, goes.NodeId} {
		if errno := r.errno(node); errno != unix.ESTALE {
			t.Errorf("file %d: %v, want ESTALE", i, errno)
		}
		r.release(open[i])
	}
}

// A hung file system does not hang the front end for longer than the transfer.
func TestStateOfHungMount(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "hung"), 0o755); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, dir)
	m.boot()
	m.opendir(m.mustLookup(1, "hung").NodeId)
	state := m.mustSave()
	release := hungMount(t, filepath.Join(dir, "hung"))
	r := newMachine(t, dir)
	pipe := r.transfer(1)
	if _, err := pipe.Write(state); err != nil {
		t.Fatal(err)
	}
	_ = pipe.Close()
	for end := time.Now().Add(20 * time.Second); !stuck(t); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no thread waits for the file system")
		}
	}
	if r.q.Starts(0) { // which gives the transfer up
		t.Error("a machine starts whose files were not loaded")
	}
	if err := r.server.StateErr(); err == nil || !strings.Contains(err.Error(), "wait for a file system") {
		t.Errorf("load: %v", err)
	}
	release()
}

// stuck reports whether a thread of this process waits in statx(2).
func stuck(t *testing.T) bool {
	t.Helper()
	all, err := filepath.Glob("/proc/self/task/*/syscall")
	if err != nil || len(all) == 0 {
		t.Fatal("no threads are found:", err)
	}
	for _, name := range all {
		// A thread that has ended meanwhile has no file.
		at, err := os.ReadFile(name)
		if err == nil && strings.HasPrefix(string(at), fmt.Sprintf("%d ", unix.SYS_STATX)) {
			return true
		}
	}
	return false
}
