package oci

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/shimtest/files"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// With --all a signal to a container that has ended is no error, as with runc.
func TestKillAllAfterTheEnd(t *testing.T) {
	r := newRuntime(t)
	pid := create(t, r, "c1", CreateOptions{Bundle: newBundle(t, nil)})
	if err := r.Start(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	if err := r.Kill(t.Context(), "c1", 9, true); err != nil {
		t.Error(err)
	}
	reap(t, pid)
	wantStatus(t, r, "c1", Stopped)
	if err := r.Kill(t.Context(), "c1", 9, true); err != nil {
		t.Errorf("after its end: %v", err)
	}
	if err := unix.Kill(files.ShimPID(t, r.dir("c1")), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := r.Kill(t.Context(), "c1", 9, true); err != nil {
		t.Errorf("after its shim's end: %v", err)
	}
	if err := r.Kill(t.Context(), "none", 9, true); !errdefs.IsNotFound(err) {
		t.Errorf("without a container: %v", err)
	}
	if err := r.Delete(t.Context(), "c1", true); err != nil {
		t.Error(err)
	}
}

// What a create that was killed at once has left is in the way of the next one
// with that id: as with runc, any delete removes it.
func TestDeleteOfAnUnfinished(t *testing.T) {
	r := newRuntime(t)
	for _, force := range []bool{false, true} {
		if err := os.MkdirAll(r.dir("c1"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := r.Delete(t.Context(), "c1", force); errdefs.IsNotFound(err) == force {
			t.Errorf("force %t: %v", force, err)
		}
		if _, err := os.Stat(r.dir("c1")); !os.IsNotExist(err) {
			t.Errorf("force %t: the directory is left: %v", force, err)
		}
	}
}

// A delete that was killed while it removed the directory can be called again.
func TestDeleteOfAHalfRemoved(t *testing.T) {
	r := newRuntime(t)
	nameProgram(t, r)
	pid := create(t, r, "c1", CreateOptions{Bundle: newBundle(t, nil)})
	if err := unix.Kill(files.ShimPID(t, r.dir("c1")), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	reap(t, pid)
	if err := r.deleteByProgram(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(t.TempDir(), "whole") // what is left to remove
	if err := os.CopyFS(whole, os.DirFS(r.dir("c1"))); err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{recordFile, "config.json", "log"} {
		if _, err := os.Lstat(filepath.Join(whole, left)); err != nil {
			t.Fatal(err)
		}
		for _, force := range []bool{false, true} {
			deleteHalfRemoved(t, r, whole, left, force)
		}
	}
}

// deleteHalfRemoved deletes container c1, of whose directory one file is left.
func deleteHalfRemoved(t *testing.T, r *Runtime, whole, left string, force bool) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(r.dir("c1")), os.CopyFS(r.dir("c1"), os.DirFS(whole))); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(r.dir("c1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != left {
			if err := os.RemoveAll(filepath.Join(r.dir("c1"), e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.Delete(t.Context(), "c1", force); err != nil && (force || !errdefs.IsNotFound(err)) {
		t.Errorf("force %t, %s is left: %v", force, left, err)
	}
	if _, err := os.Stat(r.dir("c1")); !os.IsNotExist(err) {
		t.Errorf("force %t, %s is left: the directory: %v", force, left, err)
	}
}

// A directory that is no container's is not removed, whatever --root is.
func TestDeleteOfAnotherDirectory(t *testing.T) {
	r := newRuntime(t)
	defer os.RemoveAll(r.Root)
	file := filepath.Join(r.dir("etc"), "passwd")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, filepath.Join(r.dir("etc"), "log")} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, force := range []bool{false, true} {
		if err := r.Delete(t.Context(), "etc", force); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("force %t: %v", force, err)
		}
	}
	if entries, err := os.ReadDir(r.dir("etc")); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v are left", entries, err)
	}
}

// A shim that cannot be connected to is not one that is gone: its container has
// not stopped, and is not deleted without force.
func TestShimThatTakesNoConnection(t *testing.T) {
	r := newRuntime(t)
	nameProgram(t, r)
	pid := create(t, r, "c1", CreateOptions{Bundle: newBundle(t, nil)})
	if err := r.Start(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	shim := files.ShimPID(t, r.dir("c1"))
	address := filepath.Join(r.dir("c1"), bundle.AddressFile)
	saved, err := os.ReadFile(address)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(address, []byte(bundle.AddressScheme+fullSocket(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	if state, err := r.State(t.Context(), "c1"); err == nil {
		t.Errorf("the container is %s", state.Status)
	}
	if err := r.Delete(t.Context(), "c1", false); err == nil {
		t.Error("it was deleted")
	}
	if err := unix.Kill(shim, 0); err != nil {
		t.Fatalf("its shim: %v", err)
	}
	if err := os.WriteFile(address, saved, 0o600); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, r, "c1", specs.StateRunning)
	if err := r.Delete(t.Context(), "c1", true); err != nil {
		t.Error(err)
	}
	if code := reap(t, pid); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
}

// fullSocket makes a socket whose queue of connections is full.
func fullSocket(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		conn, err := net.Dial("unix", name)
		if err != nil {
			return name
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("the queue has no end")
	return ""
}
