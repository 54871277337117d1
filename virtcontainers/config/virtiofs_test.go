package config

import (
	"os"
	"testing"
)

func TestServer(t *testing.T) {
	here := defaultVirtioFSDaemon
	if _, err := os.Stat(here); err != nil {
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
