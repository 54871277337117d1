package passthrough

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
	"github.com/katabox/katabox/internal/fdtest"
)

// onThread calls f on a thread whose working directory is its descriptors, as
// that of a serving one is.
func onThread(t testing.TB, f func(t *Thread)) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // without an unlock: the runtime ends the thread
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Chdir("/proc/self/fd")
		}
		if err == nil {
			f(NewThread())
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// newFS serves a directory.
func newFS(t testing.TB, root *os.File) *FS {
	t.Helper()
	fs, err := New(Options{Root: root, Policy: func(string) Policy { return Auto }, Descriptors: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close(context.Background()) })
	return fs
}

// load loads a state into a new FS of a directory.
func load(t testing.TB, root *os.File, state []byte) (fs *FS, err error) {
	t.Helper()
	fs = newFS(t, root)
	onThread(t, func(th *Thread) { err = fs.Load(context.Background(), th, bytes.NewReader(state)) })
	return fs, err
}

func save(t testing.TB, fs *FS) (state []byte, err error) {
	t.Helper()
	var b bytes.Buffer
	onThread(t, func(th *Thread) { err = fs.Save(context.Background(), th, &b) })
	return b.Bytes(), err
}

const (
	regular   = unix.S_IFREG
	directory = unix.S_IFDIR
)

// stateOf encodes records.
func stateOf(nodes []savedNode, handles []savedHandle) []byte {
	e := &encoder{}
	e.head(newSession(oldestMinor, needed))
	for _, n := range nodes {
		e.node(n)
	}
	e.end()
	for _, h := range handles {
		e.handle(h)
	}
	e.end()
	return e.p
}

// shareOf makes a share with d/f and g, and a link to what is outside.
func shareOf(t testing.TB) *os.File {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "share")
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "d"), 0o755), os.WriteFile(filepath.Join(dir, "d", "f"), []byte("text"), 0o600),
		os.WriteFile(filepath.Join(dir, "g"), nil, 0o600), os.WriteFile(filepath.Join(dir, "..", "f"), nil, 0o600), os.Symlink("..", filepath.Join(dir, "l")))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	root := os.NewFile(uintptr(fd), dir)
	t.Cleanup(func() { _ = root.Close() })
	return root
}

// What is loaded is saved again as it was, in any order of numbers; a file that
// the guest has open keeps its content, even if it was opened with O_TRUNC.
func TestStateIsTheSame(t *testing.T) {
	share := shareOf(t)
	want := stateOf([]savedNode{
		{id: 2, parent: 7, lookups: 1, kind: regular, name: "f"},
		{id: 4, lookups: 3},
		{id: 7, parent: 1, lookups: 1 << 40, kind: directory, name: "d"},
	}, []savedHandle{{id: 1, node: 1, dir: true}, {id: 3, node: 2, flags: unix.O_RDWR | unix.O_TRUNC | unix.O_CREAT}, {id: 4, node: 4, closed: true}})
	fs, err := load(t, share, want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := save(t, fs)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("state (-want +got):", diff)
	}
	if text, err := os.ReadFile(filepath.Join(share.Name(), "d", "f")); err != nil || string(text) != "text" {
		t.Errorf("the file has %q, %v", text, err)
	}
	fs.reset()
	if n := fs.nodes.live(); n != 1 {
		t.Errorf("%d nodes are left after a reset", n)
	}
}

// A state of the version without links' stamps is loaded. Its links are stale, since they
// may have been replaced.
func TestStateWithoutStamps(t *testing.T) {
	state := stateOf([]savedNode{
		{id: 2, parent: 1, lookups: 1, kind: regular, name: "g"},
		{id: 3, parent: 1, lookups: 1, kind: unix.S_IFLNK, name: "l"},
	}, nil)
	state = state[:len(state)-1] // the stamp, which was 0 as the lists' ends are
	state[len(stateMagic)] = withoutStamps
	fs, err := load(t, shareOf(t), state)
	if err != nil {
		t.Fatal(err)
	}
	if _, errno := fs.nodes.get(2); errno != 0 {
		t.Errorf("a file: %v", errno)
	}
	if _, errno := fs.nodes.get(3); errno != unix.ESTALE {
		t.Errorf("a link: %v, want ESTALE", errno)
	}
}

// Of two numbers that lead to one file, the one that is open stays.
func TestStateOfOneFileTwice(t *testing.T) {
	fs, err := load(t, shareOf(t), stateOf([]savedNode{
		{id: 2, parent: 1, lookups: 1, kind: regular, name: "g"},
		{id: 3, parent: 1, lookups: 1, kind: regular, name: "g"},
	}, []savedHandle{{id: 1, node: 3}}))
	if err != nil {
		t.Fatal(err)
	}
	if _, errno := fs.nodes.get(2); errno != unix.ESTALE {
		t.Errorf("the other one: %v", errno)
	}
	if _, errno := fs.nodes.get(3); errno != 0 {
		t.Errorf("the open one: %v", errno)
	}
}

func TestStateMalformed(t *testing.T) {
	share := shareOf(t)
	g := savedNode{id: 2, parent: 1, lookups: 1, kind: regular, name: "g"}
	good := stateOf([]savedNode{g}, nil)
	long := strings.Repeat("n", wire.NameMax+1)
	named := func(name string) []byte {
		return stateOf([]savedNode{{id: 2, parent: 1, kind: regular, name: name}}, nil)
	}
	handle := func(h savedHandle) []byte { return stateOf([]savedNode{g}, []savedHandle{h}) }
	for what, test := range map[string]struct {
		state []byte
		want  string
	}{
		"empty":                 {nil, "ends early"},
		"another magic":         {append([]byte("KATABOX-fs"), good[len(stateMagic):]...), "version 2"},
		"a later version":       {binary.AppendUvarint([]byte(stateMagic), 3), "of version 3"},
		"an end in a name":      {good[:len(good)-3], "ends early"},
		"something after it":    {append(bytes.Clone(good), 0), "after the end"},
		"the root":              {stateOf([]savedNode{{id: 1}}, nil), "is the root"},
		"too large a number":    {stateOf([]savedNode{{id: maxNodes + 1}}, nil), "at most"},
		"numbers that wrap":     {stateOf([]savedNode{{id: maxNodes}, {id: 5}}, nil), "at most"},
		"a path":                {named("d/f"), "name"},
		"the parent directory":  {named(".."), "name"},
		"no name":               {named(""), "name"},
		"a name with a NUL":     {named("g\x00"), "name"},
		"a long name":           {named(long), "at most 1024"},
		"no parent":             {stateOf([]savedNode{{id: 2, parent: 3, kind: regular, name: "g"}}, nil), "not there"},
		"a handle of no node":   {handle(savedHandle{id: 1, node: 3}), "not there"},
		"a handle of a file":    {handle(savedHandle{id: 1, node: 2, dir: true}), "kind"},
		"too many handles":      {handle(savedHandle{id: 33, node: 2}), "at most 32"},
		"a handle of a symlink": {stateOf([]savedNode{{id: 2, parent: 1, kind: unix.S_IFLNK, name: "l"}}, []savedHandle{{id: 1, node: 2}}), "kind"},
		"through a symlink": {stateOf([]savedNode{{id: 2, parent: 1, kind: directory, name: "l"}, {id: 3, parent: 2, kind: regular, name: "f"}},
			[]savedHandle{{id: 1, node: 3}}), `"l/f"`},
		"below itself": {stateOf([]savedNode{{id: 2, parent: 3, kind: directory, name: "a"}, {id: 3, parent: 2, kind: directory, name: "b"}},
			[]savedHandle{{id: 1, node: 3, dir: true}}), "not in the share"},
	} {
		fs, err := load(t, share, test.state)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", what, err, test.want)
		}
		checkNew(t, fs)
	}
}

// checkNew checks that a guest could begin.
func checkNew(t *testing.T, fs *FS) {
	t.Helper()
	if n, open := fs.nodes.live(), len(fs.handles.all); n != 1 || open != 0 || fs.session.Load() != 0 {
		t.Errorf("%d nodes and %d handles are left, session %#x", n, open, fs.session.Load())
	}
}

func TestStateEndsWithContext(t *testing.T) {
	fs, err := load(t, shareOf(t), stateOf([]savedNode{{id: 2, parent: 1, lookups: 1, kind: regular, name: "g"}}, []savedHandle{{id: 1, node: 2}}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var b bytes.Buffer
	onThread(t, func(th *Thread) { err = fs.Save(ctx, th, &b) })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("save: %v", err)
	}
	other := newFS(t, shareOf(t))
	state, err := save(t, fs)
	if err != nil {
		t.Fatal(err)
	}
	onThread(t, func(th *Thread) { err = other.Load(ctx, th, bytes.NewReader(state)) })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("load: %v", err)
	}
	checkNew(t, other)
}

// FuzzLoad loads anything. Either the state is refused, and nothing of it is
// left, or it is loaded, and saved and loaded again it is the same; in both
// cases every descriptor is closed at the end, and no file has changed.
func FuzzLoad(f *testing.F) {
	share := shareOf(f)
	f.Add(stateOf([]savedNode{{id: 2, parent: 1, lookups: 1, kind: directory, name: "d"}, {id: 3, parent: 2, lookups: 2, kind: regular, name: "f"}},
		[]savedHandle{{id: 1, node: 2, dir: true}, {id: 2, node: 3, flags: unix.O_RDWR | unix.O_TRUNC}}))
	f.Add(stateOf([]savedNode{{id: 3, parent: 9, kind: directory, name: "l"}, {id: 9, parent: 3, kind: directory, name: "d"}}, nil))
	f.Add(stateOf([]savedNode{{id: 2, parent: 1, lookups: 1, kind: regular, name: "g"}, {id: 4}}, []savedHandle{{id: 5, node: 4, closed: true}}))
	f.Fuzz(func(t *testing.T, state []byte) {
		before := fdtest.Open(t)
		reload(t, share, state)
		if diff := cmp.Diff(before, fdtest.Open(t)); diff != "" {
			t.Errorf("descriptors: %s", diff)
		}
		if text, err := os.ReadFile(filepath.Join(share.Name(), "d", "f")); err != nil || string(text) != "text" {
			t.Fatalf("the file has %q, %v", text, err)
		}
	})
}

func mustClose(t *testing.T, fs *FS) {
	t.Helper()
	if err := fs.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// reload loads a state, saves it, loads that and compares it.
func reload(t *testing.T, share *os.File, state []byte) {
	for range 2 {
		fs, err := load(t, share, state)
		if err != nil {
			checkNew(t, fs)
			mustClose(t, fs)
			return
		}
		again, err := save(t, fs)
		mustClose(t, fs)
		if err != nil {
			t.Fatalf("save of what was loaded: %v", err)
		}
		next, err := load(t, share, again)
		if err != nil {
			t.Fatalf("load of what was saved: %v", err)
		}
		same, err := save(t, next)
		mustClose(t, next)
		if err != nil || !bytes.Equal(again, same) {
			t.Fatalf("saved again, %d bytes are %d: %v", len(again), len(same), err)
		}
		state = same
	}
}

// The class says whether the state is wrong, or belongs to another version.
func TestStateErrorClasses(t *testing.T) {
	share := shareOf(t)
	if _, err := load(t, share, []byte(stateMagic)); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a short state: %v", err)
	}
	e := &encoder{}
	e.head(newSession(oldestMinor, needed|1<<31))
	e.end()
	e.end()
	if _, err := load(t, share, e.p); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a session with features that are not served: %v", err)
	}
}

// The inode numbers of a tree with several devices are as before in the guest that is
// restored, in whatever order the devices are found.
func TestStateKeepsDevices(t *testing.T) {
	tb := &table{savedDevices: 3}
	tr := &tree{id: shareTree + 1}
	dir := &node{tree: tr, key: key{dev: 1}}
	number := func(dev uint32) uint16 { return tb.device(dir, key{dev: dev}, regular) }
	tr.keepDevice(20, 2)
	tr.keepDevice(30, 2) // a lie
	if got := number(20); got != 2 {
		t.Errorf("device 20 has number %d, want 2", got)
	}
	if got := number(40); got != 4 {
		t.Errorf("a new device has number %d, want one after those that were saved", got)
	}
	tr.keepDevice(10, 1)
	if got := number(10); got != 1 {
		t.Errorf("device 10 has number %d, want 1", got)
	}
	if got := number(1); got != 0 {
		t.Errorf("the directories' device has number %d", got)
	}
	state := stateOf([]savedNode{{id: 2, parent: 1, lookups: 1, kind: regular, device: maxDevices, name: "g"}}, nil)
	fs, err := load(t, shareOf(t), state)
	if err != nil {
		t.Fatal(err)
	}
	if fs.nodes.savedDevices != maxDevices {
		t.Errorf("the most that was loaded is %d", fs.nodes.savedDevices)
	}
}

// Of the files that are mounted in the share those of one device have the host's numbers,
// in a restored guest the same ones.
func TestStateKeepsDevicesOfShare(t *testing.T) {
	tb := &table{savedDevices: 1}
	tr := &tree{id: shareTree}
	dir := &node{tree: tr, key: key{dev: 1}}
	for _, file := range []struct {
		dev         uint32
		saved, want uint16
	}{{dev: 20, saved: 1, want: 1}, {dev: 30, saved: 0, want: 0}, {dev: 30, saved: 1, want: 0}, {dev: 40, saved: 0, want: 2}, {dev: 20, saved: 0, want: 1}} {
		tr.keepDevice(file.dev, file.saved)
		if got := tb.device(dir, key{dev: file.dev}, regular); got != file.want {
			t.Errorf("%+v: number %d", file, got)
		}
	}
	if got := tb.device(dir, key{dev: 50}, directory); got != 0 {
		t.Errorf("a directory's device has number %d", got)
	}
}
