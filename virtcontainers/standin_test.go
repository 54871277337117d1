package virtcontainers_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// alive reports whether the host has a process of that pid, zombies included.
func alive(pid int) bool { return !errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

func TestContainersHaveAProcessEach(t *testing.T) {
	p := newPod(t)
	first, second := p.run(sandboxID), p.run("c1")
	if a, b := first.PID(), second.PID(); a == b || !alive(a) || !alive(b) {
		t.Fatalf("the containers' processes are %d and %d", a, b)
	}
	rec, err := persist.Load(p.host.Platform().StateDir(), sandboxID)
	if err != nil || !rec.StandIns[sandboxID].Alive() || rec.StandIns["c1"].PID != second.PID() {
		t.Errorf("record %+v, %v", rec, err)
	}
	p.exits("c1", "", 3)
	if exit, err := initOf(t, second).Wait(t.Context()); err != nil || exit.PID != second.PID() || alive(exit.PID) {
		t.Errorf("after Wait the container's process is there: %+v, %v", exit, err)
	}
	if !alive(first.PID()) {
		t.Error("another container's process ended too")
	}
	if _, err := second.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.run("c2")
	rec, err = persist.Load(p.host.Platform().StateDir(), sandboxID)
	if err != nil || len(rec.StandIns) != 2 || rec.StandIns["c1"].PID != 0 {
		t.Errorf("record %+v, %v", rec, err)
	}
}

func TestProcessShowsTheContainersFiles(t *testing.T) {
	p := newPod(t)
	opts := p.options(sandboxID, nil)
	c := p.run(sandboxID)
	root := fmt.Sprintf("/proc/%d/root", c.PID())
	if err := os.WriteFile(filepath.Join(root, "copied"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(opts.Bundle.RootfsPath(), "copied")); string(data) != "x" {
		t.Errorf("the root file system has %q, %v", data, err)
	}
}

func TestSandboxWithAProcessOfItsOwn(t *testing.T) {
	host := newHost(t)
	observer := newObserver()
	opts := options(observer)
	opts.StandIn = true
	s, err := virtcontainers.New(t.Context(), host.Platform(), opts)
	if err != nil {
		t.Fatal(err)
	}
	pid := s.PID()
	if !alive(pid) {
		t.Error("the sandbox has no process")
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if alive(pid) || s.PID() != pid {
		t.Error("the sandbox's process outlives it")
	}
}

func TestSignalsToTheProcess(t *testing.T) {
	for name, signal := range map[string]unix.Signal{"passed on": unix.SIGTERM, "killed": unix.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			p.run(sandboxID)
			c := p.run("c1")
			if err := unix.Kill(c.PID(), signal); err != nil {
				t.Fatal(err)
			}
			if status := statusOf(t, initOf(t, c)); status != 128+uint32(signal) {
				t.Errorf("the container ended with %d", status)
			}
			p.observer.expect(t, fmt.Sprintf("c1=%d", 128+signal))
		})
	}
}

// Nothing of a container is left when its creation fails, at whichever step.
func TestNoProcessOfAFailedCreate(t *testing.T) {
	for _, step := range []string{"create", "limits", "standin", "streams"} {
		host := newHost(t)
		platform := host.Platform()
		platform.Failpoint = step
		s, err := virtcontainers.New(t.Context(), platform, options(newObserver()))
		if err != nil {
			t.Fatal(err)
		}
		p := &pod{Sandbox: s, t: t, host: host}
		if _, err := s.Create(t.Context(), p.options("c1", nil), ignore); err == nil {
			t.Errorf("%s: create succeeded", step)
		}
		if left := withEnvironment(t, "KATABOX_CONTAINER=c1"); len(left) > 0 {
			t.Errorf("%s: processes %v are left", step, left)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// withEnvironment lists the children of this process with a word in their
// environment.
func withEnvironment(t *testing.T, word string) (found []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		data, _ := os.ReadFile(path) // another user's process, or gone
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		child := strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", os.Getpid()))
		if child && slices.Contains(strings.Split(string(data), "\x00"), word) {
			found = append(found, path)
		}
	}
	return found
}
