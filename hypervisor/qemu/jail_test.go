package qemu

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// A jail shows what an ELF program needs; for any other file the error says
// what to do, instead of QEMU's process failing with a misleading one.
func TestJailWantsProgram(t *testing.T) {
	self, err := filepath.EvalSymlinks("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	if path, err := program(link); err != nil || path != self {
		t.Errorf("a link to an ELF program: %q, %v; want %q", path, err, self)
	}
	for text, want := range map[string]string{
		"#!/bin/sh\nexec qemu-system-x86_64 \"$@\"\n": "is a script",
		"exec qemu-system-x86_64 \"$@\"\n":            "is not an ELF program",
		"":                                            "is not an ELF program",
	} {
		wrapper := filepath.Join(dir, "wrapper")
		if err := os.WriteFile(wrapper, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := program(wrapper)
		if !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%q: %v, want an invalid argument", text, err)
			continue
		}
		for _, part := range []string{want, wrapper, "hypervisor.qemu.path", "hypervisor.qemu.rootless = false"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %v, want %q in it", text, err, part)
			}
		}
	}
}
