package shimtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/shim/maker"
	"github.com/katabox/katabox/shim/manager"
	"github.com/katabox/katabox/shim/spare"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// RunDirEnv makes the program the shim; its guests keep what they make on the
// host below that directory.
const RunDirEnv = "KATABOX_TEST_RUN_DIR"

// HangEnv names a file that the guest makes when it is asked to set its sandbox up,
// which it does not answer then.
const HangEnv = "KATABOX_TEST_HANG"

// hang makes the guest hang if the environment says so.
func hang(agent *fakeguest.Agent) {
	name := os.Getenv(HangEnv)
	if name == "" {
		return
	}
	agent.Hook("SetupSandbox", func(ctx context.Context, _ proto.Message) error {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

// SilentEnv names a file; while it exists, guests do not answer whether they are there.
const SilentEnv = "KATABOX_TEST_SILENT"

// silence makes the guest silent when the environment says so.
func silence(agent *fakeguest.Agent) {
	name := os.Getenv(SilentEnv)
	if name == "" {
		return
	}
	agent.Hook("Hello", func(ctx context.Context, _ proto.Message) error {
		if !exists(name) {
			return nil
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

// StartFailsEnv makes guests refuse to start processes, with its value as the error.
const StartFailsEnv = "KATABOX_TEST_START_FAILS"

func failStarts(agent *fakeguest.Agent) {
	if why := os.Getenv(StartFailsEnv); why != "" {
		agent.Fail("Start", errors.New(why))
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// Main is for a TestMain: it runs the tests, which must leave no goroutine, or the shim
// if the program was started as one, and does not return.
func Main(m *testing.M) {
	dir := os.Getenv(RunDirEnv)
	if dir == "" {
		goleak.VerifyTestMain(m)
	}
	if err := shimMain(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func shimMain(dir string) error {
	host := fakeguest.New(dir)
	hang(host.Agent)
	silence(host.Agent)
	failStarts(host.Agent)
	endItself(host.Agent)
	platform := host.Platform()
	platform.StartSpare = maker.StartSpare
	if len(os.Args) > 1 && os.Args[1] == maker.SpareCommand {
		return spare.Run(context.Background(), os.Args[2:], func(context.Context) virtcontainers.Platform { return platform })
	}
	p, err := manager.ParseArgs(os.Args[1:], os.Getenv)
	if err != nil {
		return err
	}
	switch p.Action {
	case manager.ActionStart:
		p.Pool = virtcontainers.PoolDir(dir)
		return manager.Start(p, os.Stdin, os.Stdout)
	case manager.ActionDelete:
		return manager.Delete(p, platform, os.Stdout)
	}
	ctx, err := manager.OpenLog(context.Background(), p)
	if err != nil {
		return err
	}
	return serve(ctx, p, platform)
}

// Prepare makes a directory for guests and sets the environment that shims are
// started with. program is the shim. When the test ends, nothing may be left on
// the host. The test is skipped where sandboxes cannot be made.
func Prepare(t *testing.T) (program, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("sandboxes mount, which needs root")
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
	t.Setenv(RunDirEnv, dir)
	conf := filepath.Join(t.TempDir(), "configuration.toml")
	if err := os.WriteFile(conf, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KATA_CONF_FILE", conf)
	program, err = os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return program, dir
}
