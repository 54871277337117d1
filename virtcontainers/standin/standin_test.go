package standin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/standin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
}

func newHost(t *testing.T) *standin.Host {
	t.Helper()
	needRoot(t)
	h, err := standin.NewHost(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h
}

func start(t *testing.T, h *standin.Host, opts standin.Options) *standin.Process {
	t.Helper()
	p, err := h.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.End(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

func await(t *testing.T, p *standin.Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("the stand-in has not ended")
	}
}

// clone returns a detached copy of the mount at dir.
func clone(t *testing.T, dir string) *os.File {
	t.Helper()
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), dir)
	t.Cleanup(func() { f.Close() })
	return f
}

func proc(p *standin.Process, name string) string { return fmt.Sprintf("/proc/%d/%s", p.PID(), name) }

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestLooksLikeTheContainer(t *testing.T) {
	p := start(t, newHost(t), standin.Options{
		Args: []string{"/usr/sbin/nginx-with-a-long-name", "-g", "daemon\x00off"}, Env: []string{"A=b"}, Hostname: "web",
	})
	if got := read(t, proc(p, "comm")); got != "nginx-with-a-lo\n" {
		t.Errorf("comm is %q", got)
	}
	if got := read(t, proc(p, "cmdline")); got != "/usr/sbin/nginx-with-a-long-name\x00-g\x00daemon off\x00" {
		t.Errorf("cmdline is %q", got)
	}
	if got := read(t, proc(p, "environ")); got != "A=b\x00" {
		t.Errorf("environ is %q", got)
	}
}

func TestOddCommandLines(t *testing.T) {
	h := newHost(t)
	long := strings.Repeat("x", 1<<20)
	for _, args := range [][]string{nil, {""}, {"."}, {".."}, {"/"}, {"-"}, {"\x00"}, {long}, {"a", long}, slices.Repeat([]string{"y"}, 1<<16)} {
		p := start(t, h, standin.Options{Args: args, Hostname: "h"})
		if got := len(read(t, proc(p, "cmdline"))); got == 0 || got > 4200 {
			t.Errorf("%.10q: the command line has %d bytes", args, got)
		}
	}
}

func TestHasNamespacesOfItsOwn(t *testing.T) {
	h := newHost(t)
	a, b := start(t, h, standin.Options{Hostname: "a"}), start(t, h, standin.Options{Hostname: "b"})
	for _, kind := range []string{"mnt", "pid", "ipc", "uts", "net"} {
		name := "ns/" + kind
		var links []string
		for _, path := range []string{proc(a, name), proc(b, name), "/proc/self/" + name} {
			link, err := os.Readlink(path)
			if err != nil {
				t.Fatal(err)
			}
			links = append(links, link)
		}
		if slices.Sort(links); len(slices.Compact(links)) != 3 {
			t.Errorf("%s: two of the stand-ins and the host share a namespace: %v", kind, links)
		}
	}
}

func TestJoinsTheNetwork(t *testing.T) {
	h := newHost(t)
	a := start(t, h, standin.Options{Hostname: "a"})
	net, err := os.Open(proc(a, "ns/net"))
	if err != nil {
		t.Fatal(err)
	}
	defer net.Close()
	b := start(t, h, standin.Options{Hostname: "b", Network: net})
	inA, _ := os.Readlink(proc(a, "ns/net"))
	if inB, _ := os.Readlink(proc(b, "ns/net")); inA != inB {
		t.Errorf("network namespaces are %s and %s", inA, inB)
	}
	// The next stand-in must not be in the previous one's namespace.
	if inC, _ := os.Readlink(proc(start(t, h, standin.Options{Hostname: "c"}), "ns/net")); inC == inA {
		t.Error("a stand-in without a network is in another's")
	}
}

func TestHasNoPrivilegeAndLittleMemory(t *testing.T) {
	p := start(t, newHost(t), standin.Options{Hostname: "a"})
	status := map[string]string{}
	for line := range strings.Lines(read(t, proc(p, "status"))) {
		name, value, _ := strings.Cut(line, ":")
		status[name] = strings.TrimSpace(value)
	}
	for name, want := range map[string]string{"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "NoNewPrivs": "1", "Threads": "1"} {
		if status[name] != want {
			t.Errorf("%s is %s, want %s", name, status[name], want)
		}
	}
	for line := range strings.Lines(read(t, proc(p, "smaps_rollup"))) {
		if kib := 0; strings.HasPrefix(line, "Pss:") {
			if _, err := fmt.Sscanf(line, "Pss: %d kB", &kib); err != nil || kib > 64 {
				t.Errorf("it costs %s", line)
			}
		}
	}
	if open, err := os.ReadDir(proc(p, "fd")); err != nil || len(open) != 4 {
		t.Errorf("it has files %v open: %v", open, err)
	}
}

func TestEmptyRoot(t *testing.T) {
	p := start(t, newHost(t), standin.Options{Hostname: "a"})
	if entries, err := os.ReadDir(proc(p, "root")); err != nil || len(entries) != 0 {
		t.Errorf("the root has %v: %v", entries, err)
	}
	if err := os.WriteFile(proc(p, "root/x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("a write says %v, want a read-only file system", err)
	}
	if mounts := strings.Count(read(t, proc(p, "mountinfo")), "\n"); mounts != 1 {
		t.Errorf("its namespace has %d mounts:\n%s", mounts, read(t, proc(p, "mountinfo")))
	}
}

// image makes a hostile root file system.
func image(t *testing.T, canary string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"etc", "data", "proc", "real"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "etc/name"), []byte("inside"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"out": canary, "up": "../../../.." + canary, "dir": filepath.Dir(canary), "mnt": "/real"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestShowsTheRootFileSystem(t *testing.T) {
	canary := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(canary, []byte("the host's"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, volume := image(t, canary), t.TempDir()
	p := start(t, newHost(t), standin.Options{Hostname: "a", View: standin.View{
		Root: clone(t, dir),
		Mounts: []standin.Mount{
			{Target: "/proc"}, {Target: "/nowhere"}, {Target: "/etc/name"},
			{Target: "/data", Tree: clone(t, volume)},
			{Target: "/mnt", Tree: clone(t, volume), ReadOnly: true}, // a link, which leads to /real
		},
	}})
	root := proc(p, "root")
	if got := read(t, root+"/etc/name"); got != "inside" {
		t.Errorf("a file has %q", got)
	}
	for _, name := range []string{"new", "data/new"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte("x"), 0o600); err != nil {
			t.Error(err)
		}
	}
	if read(t, dir+"/new") != "x" || read(t, volume+"/new") != "x" || read(t, root+"/real/new") != "x" {
		t.Error("a write did not come to the host's files")
	}
	for _, name := range []string{"proc/x", "real/x"} {
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("a write to %s says %v, want a read-only file system", name, err)
		}
	}
	for _, name := range []string{"out", "up", "dir/canary"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte("gone"), 0o600); !errors.Is(err, unix.ELOOP) {
			t.Errorf("a write through the link %s says %v, want that it is not followed", name, err)
		}
	}
	if got := read(t, canary); got != "the host's" {
		t.Errorf("the host's file has %q", got)
	}
	if entries, err := os.ReadDir(dir + "/data"); err != nil || len(entries) != 0 {
		t.Errorf("a mount of the view shows on the host: %v %v", entries, err)
	}
}

func TestReadOnlyRoot(t *testing.T) {
	p := start(t, newHost(t), standin.Options{Hostname: "a", View: standin.View{Root: clone(t, t.TempDir()), ReadOnly: true}})
	if err := os.WriteFile(proc(p, "root/x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("a write says %v, want a read-only file system", err)
	}
}

func TestSignalsAreReported(t *testing.T) {
	p := start(t, newHost(t), standin.Options{Hostname: "a"})
	want := []unix.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGTSTP, 34, 64}
	var got []unix.Signal
	for _, s := range want {
		if err := unix.Kill(p.PID(), s); err != nil {
			t.Fatal(err)
		}
		select {
		case s := <-p.Signals():
			got = append(got, s)
		case <-time.After(30 * time.Second):
			t.Fatalf("signal %d was not reported", s)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Without a reader of the signals the process must still end.
func TestFloodOfSignals(t *testing.T) {
	p := start(t, newHost(t), standin.Options{Hostname: "a"})
	for i := range 1 << 16 {
		if err := unix.Kill(p.PID(), unix.Signal(1+i%8)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Kill(p.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, p)
}

func TestKilledByAnybody(t *testing.T) {
	p := start(t, newHost(t), standin.Options{Hostname: "a"})
	if err := unix.Kill(p.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, p)
	if _, err := os.Stat(proc(p, "")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the pid is still there: %v", err)
	}
}

func TestEndsWithItsHost(t *testing.T) {
	needRoot(t)
	h, err := standin.NewHost(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p, err := h.Start(standin.Options{Hostname: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
	await(t, p)
}

// A failure must say what failed, and leave nothing.
func TestFailures(t *testing.T) {
	h := newHost(t)
	file, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := h.Start(standin.Options{Hostname: "a", Network: file}); err == nil || !strings.Contains(err.Error(), "enter network namespace") {
		t.Errorf("a network that is none: %v", err)
	}
	if _, err := h.Start(standin.Options{Hostname: "a", View: standin.View{Root: file}}); err == nil {
		t.Error("a root that is no mount was taken")
	}
	p := start(t, h, standin.Options{Hostname: "a"}) // the thread still works
	if entries, err := os.ReadDir(proc(p, "root")); err != nil || len(entries) != 0 {
		t.Errorf("the root has %v: %v", entries, err)
	}
	// By its source: unrelated paths on this host may contain the word.
	if bytes.Contains([]byte(read(t, "/proc/self/mountinfo")), []byte(" - tmpfs katabox ")) {
		t.Error("a mount is left on the host")
	}
}
