package config

import (
	"os"
	"path/filepath"
	"testing"
)

func TestServer(t *testing.T) {
	here := defaultVirtioFSDaemon
	if !isFile(here) {
		here = "" // as on Debian 13
	}
	for daemon, want := range map[string]string{
		"": "", "/opt/virtiofsd": "/opt/virtiofsd", defaultVirtioFSDaemon: here,
	} {
		if got := (VirtioFS{Daemon: daemon}).Server(); got != want {
			t.Errorf("%q is served by %q, want %q", daemon, got, want)
		}
	}
}

// A link to a daemon is not the daemon that the default means.
func TestIsFile(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if !isFile(file) || isFile(link) || isFile(dir) || isFile(filepath.Join(dir, "none")) {
		t.Error("a file is not told from a link, a directory or nothing")
	}
}
