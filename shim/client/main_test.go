package client

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/katabox/katabox/shim/manager"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// runDirEnv makes this program the shim, whose guests are in memory and keep
// what they make on the host below that directory.
const runDirEnv = "KATABOX_TEST_RUN_DIR"

func TestMain(m *testing.M) {
	dir := os.Getenv(runDirEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := shimMain(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func shimMain(dir string) error {
	p, err := manager.ParseArgs(os.Args[1:], os.Getenv)
	if err != nil {
		return err
	}
	platform := fakeguest.New(dir).Platform()
	switch p.Action {
	case manager.ActionStart:
		return manager.Start(p, os.Stdin, os.Stdout)
	case manager.ActionDelete:
		return manager.Delete(p, platform, os.Stdout)
	}
	ctx, err := manager.OpenLog(context.Background(), p)
	if err != nil {
		return err
	}
	return manager.Serve(ctx, p, platform)
}

// newProgram makes a container's bundle and says how to call the shim for it.
// At the end nothing may be left on the host.
func newProgram(t *testing.T, id string) Program {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("sandboxes mount, which needs root")
	}
	if _, err := os.Stat(fakeguest.Daemon); err != nil {
		t.Skipf("virtiofsd is not installed (Debian: qemu-system-common): %v", err)
	}
	dir, err := os.MkdirTemp("", "kb") //nolint:usetesting // t.TempDir gives names too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	host := fakeguest.New(dir)
	t.Cleanup(func() {
		if left, err := host.Leftovers(); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		if err := host.Clear(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv(runDirEnv, dir)
	conf := filepath.Join(t.TempDir(), "configuration.toml")
	text := fmt.Sprintf("[hypervisor.qemu]\nvirtio_fs_daemon = %q\n", fakeguest.Daemon)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KATA_CONF_FILE", conf)
	t.Setenv("TTRPC_ADDRESS", "/run/another-engine.sock") // must not be used
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(dir, "bundles", id)
	if err := fakeguest.WriteBundle(bundle, nil); err != nil {
		t.Fatal(err)
	}
	return Program{Path: self, ID: id, Bundle: bundle}
}
