package container

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/standalone/store"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// deadProcess is a process that has ended.
func deadProcess(t *testing.T) persist.Process {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := persist.Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return p
}

// While a dead container is cleaned up, another process does the same with the next
// one, and runs a new container of that name: this one is left alone.
func TestSweepDeadLeavesTheNext(t *testing.T) {
	m, _, dir := newContainer(t, "a")
	dead := deadProcess(t)
	if err := m.write(&Record{Name: "a", Engine: dead, Remove: true}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, bundle.AddressFile), []byte("unix:///nowhere"), 0o600); err != nil {
		t.Fatal(err)
	}
	next, err := m.Store.MakeContainer("b", store.Image{Name: "image", Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	self, err := persist.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.write(&Record{Name: "b", Engine: self}); err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(t.TempDir(), "fresh")
	if err := os.Rename(filepath.Join(next, recordFile), fresh); err != nil {
		t.Fatal(err)
	}
	if err := m.write(&Record{Name: "b", Engine: dead, Remove: true}); err != nil {
		t.Fatal(err)
	}
	// What cleans up after the shim of a is where the other process runs.
	m.Shim = filepath.Join(t.TempDir(), "shim")
	if err := os.WriteFile(m.Shim, []byte("#!/bin/sh\nmv "+fresh+" "+filepath.Join(next, recordFile)+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := m.SweepDead(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the dead container's directory: %v", err)
	}
	if r, err := m.Load("b"); err != nil || r.State() != "starting" {
		t.Errorf("the new container: %+v, %v", r, err)
	}
}

// The engine of a killed container that waits for a reader of its output is told to give
// it up.
func TestRemoveWhileAReaderIsSlow(t *testing.T) {
	m, r, dir := newContainer(t, "c")
	told := filepath.Join(t.TempDir(), "told")
	cmd := exec.Command("sh", "-c", "trap 'touch "+told+"; kill $!; exit' TERM; sleep 600 & wait")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	engine, err := persist.Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	r.Engine, r.Started = engine, &now
	if err := m.write(r); err != nil {
		t.Fatal(err)
	}
	if err := m.Remove(t.Context(), "c", true); err != nil {
		t.Error(err)
	}
	if took := time.Since(now); took > endTimeout/2 {
		t.Errorf("it took %v", took)
	}
	for _, path := range []string{told, dir} {
		if _, err := os.Stat(path); (err == nil) != (path == told) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// An image with a stop signal that is none can be stopped, by the default, as with Docker.
func TestStopSignal(t *testing.T) {
	for named, want := range map[string]unix.Signal{
		"": unix.SIGTERM, "SIGQUIT": unix.SIGQUIT, "int": unix.SIGINT, "10": unix.SIGUSR1, "RTMIN+3": unix.Signal(37),
		"SIGNONE": unix.SIGTERM, "0": unix.SIGTERM, "-1": unix.SIGTERM, "999": unix.SIGTERM, "${SIG}": unix.SIGTERM,
	} {
		if got := (&Record{StopSignal: named}).stopSignal(); got != want {
			t.Errorf("%q: %d, want %d", named, got, want)
		}
	}
}

// A name that is none is not taken for another one.
func TestNamesThatAreNone(t *testing.T) {
	m, _, dir := newContainer(t, "c")
	if err := m.write(&Record{Name: "c", Engine: deadProcess(t)}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x/c", "../containers/c", "c/", "..", "", "/"} {
		if _, err := m.Load(name); !errdefs.IsInvalidArgument(err) {
			t.Errorf("load %q: %v", name, err)
		}
		if err := m.Remove(t.Context(), name, true); !errdefs.IsInvalidArgument(err) {
			t.Errorf("remove %q: %v", name, err)
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

// The directory of a container whose process was killed before it had a record is in
// no list; it is removed, unless a container is being made.
func TestSweepDeadRemovesTheUnfinished(t *testing.T) {
	m, _, dir := newContainer(t, "c")
	unfinished, err := m.Store.MakeContainer("u", store.Image{Name: "image", Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := m.Store.Use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.SweepDead(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(unfinished); err != nil {
		t.Errorf("while a container is made: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if err := m.SweepDead(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(unfinished); !os.IsNotExist(err) {
		t.Errorf("the unfinished one is left: %v", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

// A container that is being made has no record for a moment: its directory stays, and it
// is found once it has one.
func TestRemoveWhatIsBeingMade(t *testing.T) {
	m, _, _ := newContainer(t, "c")
	dir, err := m.Store.MakeContainer("u", store.Image{Name: "image", Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := m.Store.Use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Remove(t.Context(), "u", true); !errdefs.IsUnavailable(err) {
		t.Errorf("while it has no record: %v", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	self, err := persist.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(unfinishedTimeout/4, func() {
		if err := m.write(&Record{Name: "u", Engine: self}); err != nil {
			t.Error(err)
		}
	})
	if err := m.Remove(t.Context(), "u", false); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("when its record comes: %v", err)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, recordFile)), unlock()); err != nil {
		t.Fatal(err)
	}
	if err := m.Remove(t.Context(), "u", false); err != nil {
		t.Errorf("when what made it is gone: %v", err)
	}
	if err := m.Remove(t.Context(), "u", false); !errdefs.IsNotFound(err) {
		t.Errorf("when it is removed: %v", err)
	}
}
