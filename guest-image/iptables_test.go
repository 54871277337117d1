package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/u-root/u-root/pkg/cpio"

	"github.com/katabox/katabox/guest-image/internal/elftest"
)

// hostIPTables are this host's, of both kinds.
func hostIPTables(t *testing.T) []string {
	t.Helper()
	paths := []string{"/usr/sbin/iptables-nft", "/usr/sbin/iptables-legacy"}
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("no iptables here: %v", err)
		}
	}
	return paths
}

// unpack writes an archive's regular files and links, as the kernel does.
func unpack(t *testing.T, archive []byte) (dir string) {
	t.Helper()
	dir = t.TempDir()
	r := cpio.Newc.Reader(bytes.NewReader(archive))
	for {
		rec, err := r.ReadRecord()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, rec.Name)
		data, err := io.ReadAll(io.NewSectionReader(rec, 0, int64(rec.FileSize)))
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		switch {
		case err != nil:
		case rec.Mode&cpio.S_IFMT == cpio.S_IFLNK:
			err = os.Symlink(string(data), path)
		case rec.Mode&cpio.S_IFMT == cpio.S_IFREG:
			err = os.WriteFile(path, data, os.FileMode(rec.Mode).Perm())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The tools run where nothing but the image's files is, with each extension.
func TestIPTablesRunInTheImage(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("chroot needs root")
	}
	for _, path := range hostIPTables(t) {
		opts := testOptions(t)
		opts.iptables = path
		mustBuild(t, opts)
		dir := unpack(t, get(t, opts.out, initrdName))
		for _, args := range [][]string{
			{"iptables-save", "--version"}, {"iptables-restore", "--version"}, {"ip6tables-save", "--version"}, {"ip6tables-restore", "--version"},
			{"iptables", "-m", "statistic", "-h"}, {"iptables", "-m", "connlabel", "-h"}, {"iptables", "-j", "REJECT", "-h"}, {"ip6tables", "-m", "rt", "-h"},
		} {
			cmd := exec.CommandContext(t.Context(), "chroot", append([]string{dir, "/usr/sbin/" + args[0]}, args[1:]...)...)
			cmd.Env = []string{}
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "tables") {
				t.Errorf("%s: %v: %v: %s", path, args, err, out)
			}
		}
	}
}

// An image with iptables and one without are told apart.
func TestIPTablesAreInTheStamp(t *testing.T) {
	paths := hostIPTables(t)
	opts := testOptions(t)
	for _, path := range []string{"", paths[0], paths[1], ""} {
		opts.iptables = path
		if !mustBuild(t, opts) {
			t.Errorf("%q: not built", path)
		}
		if mustBuild(t, opts) {
			t.Errorf("%q: built twice", path)
		}
	}
}

func TestIPTablesErrors(t *testing.T) {
	dir := t.TempDir()
	missing := elftest.Kernel(elftest.Segment{Type: elf.PT_INTERP, Data: []byte("/none/ld.so\x00")})
	for name, data := range map[string][]byte{"xtables-script": []byte("#!/bin/sh\n"), "xtables-linker": missing, "other": elftest.Static("other")} {
		put(t, filepath.Join(dir, name), data)
	}
	for name, want := range map[string]string{
		"none": "install iptables", "xtables-script": "xtables-script: read ", "xtables-linker": "/none/ld.so", "other": "want xtables-nft-multi",
	} {
		if _, err := readIPTables(filepath.Join(dir, name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
