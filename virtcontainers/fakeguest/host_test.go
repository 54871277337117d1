package fakeguest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// Leftovers are found and cleared.
func TestLeftovers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	host := fakeguest.New(filepath.Join(t.TempDir(), "run"))
	platform := host.Platform()
	if _, err := platform.Monitor.Launch(t.Context(), hypervisor.Spec{}); err != nil {
		t.Fatal(err)
	}
	if _, err := platform.OpenTransport(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := host.Agent.Dial(t.Context(), 1025)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	rootfs := filepath.Join(host.RunDir, "bundles", "pod", "rootfs")
	state := filepath.Join(platform.StateDir(), "pod")
	for _, dir := range []string{rootfs, state} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := unix.Mount(rootfs, rootfs, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	left, err := host.Leftovers()
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(left, "\n")
	for _, want := range []string{"machine", "a transport", "1 connections", "mount " + rootfs, state} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not found: %v", want, left)
		}
	}
	if err := host.Clear(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(host.RunDir); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
}
