package oci

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Hooks get the engine's bundle, as state reports it, and not our copy of its spec.
func TestHooksGetTheEnginesBundle(t *testing.T) {
	r := newRuntime(t)
	out := t.TempDir()
	hook := func(kind string) []specs.Hook {
		file := filepath.Join(out, kind)
		return []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "cat > " + file + "; pwd > " + file + ".dir"}}}
	}
	dir := newBundle(t, func(s *specs.Spec) {
		s.Hooks = &specs.Hooks{CreateRuntime: hook("createRuntime"), Poststart: hook("poststart"), Poststop: hook("poststop")}
	})
	pid := create(t, r, "c1", CreateOptions{Bundle: dir})
	if err := r.Start(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	reap(t, pid)
	if err := r.Delete(t.Context(), "c1", true); err != nil {
		t.Error(err)
	}
	for _, kind := range []string{"createRuntime", "poststart", "poststop"} {
		var state specs.State
		data, err := os.ReadFile(filepath.Join(out, kind))
		if err == nil {
			err = json.Unmarshal(data, &state)
		}
		if err != nil || state.Bundle != dir || state.ID != "c1" {
			t.Errorf("%s: state %s, %v; want the bundle %s", kind, data, err, dir)
		}
		if where, err := os.ReadFile(filepath.Join(out, kind+".dir")); err != nil || string(where) != dir+"\n" {
			t.Errorf("%s ran in %q, %v", kind, where, err)
		}
	}
}

// An engine may have removed its bundle before the last hooks run.
func TestHooksWithoutTheEnginesBundle(t *testing.T) {
	r := newRuntime(t)
	file := filepath.Join(t.TempDir(), "ran")
	dir := newBundle(t, func(s *specs.Spec) {
		s.Hooks = &specs.Hooks{Poststop: []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "touch " + file}}}}
	})
	pid := create(t, r, "c1", CreateOptions{Bundle: dir})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := r.Delete(t.Context(), "c1", true); err != nil {
		t.Error(err)
	}
	reap(t, pid)
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}
