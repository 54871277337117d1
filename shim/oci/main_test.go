package oci

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/katabox/katabox/shim/manager"
	"github.com/katabox/katabox/shim/oci/monitor"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// runDirEnv makes this program the shim, whose guests are in memory and keep
// what they make on the host below that directory.
const runDirEnv = "KATABOX_TEST_RUN_DIR"

func TestMain(m *testing.M) {
	if monitor.IsMonitor() {
		os.Exit(monitor.Main())
	}
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

// newRuntime makes a runtime whose guests are in memory. At the end nothing may
// be left, neither of the pods nor in its root.
func newRuntime(t *testing.T) *Runtime {
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
	r := &Runtime{Root: filepath.Join(t.TempDir(), "root")}
	t.Cleanup(func() {
		if left, err := host.Leftovers(); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		if err := host.Clear(); err != nil {
			t.Error(err)
		}
		if ids, err := r.ids(); err != nil || len(ids) > 0 {
			t.Errorf("containers left: %v, %v", ids, err)
		}
	})
	t.Setenv(runDirEnv, dir)
	conf := filepath.Join(t.TempDir(), "configuration.toml")
	text := fmt.Sprintf("[hypervisor.qemu]\nvirtio_fs_daemon = %q\n", fakeguest.Daemon)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KATA_CONF_FILE", conf)
	if r.Program, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	return r
}
