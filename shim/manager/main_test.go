package manager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// roleEnv makes this program, run again, something other than a test.
const roleEnv = "KATABOX_TEST_ROLE"

// The roles: the daemon, with a guest in memory below the directory in runDirEnv,
// and a process that does nothing.
const (
	roleDaemon = "daemon"
	roleSleep  = "sleep"
	runDirEnv  = "KATABOX_TEST_RUN_DIR"
)

var errInjected = errors.New("injected")

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case roleDaemon:
		if err := daemonMain(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	case roleSleep:
		time.Sleep(time.Hour)
		return
	}
	log.L.Logger.SetLevel(logrus.PanicLevel)
	goleak.VerifyTestMain(m)
}

// daemonMain is the part of the shim's main that runs the daemon.
func daemonMain() error {
	p, err := ParseArgs(os.Args[1:], os.Getenv)
	if err != nil {
		return err
	}
	ctx, err := OpenLog(context.Background(), p)
	if err != nil {
		return err
	}
	return Serve(ctx, p, fakeguest.New(os.Getenv(runDirEnv)).Platform())
}

// newHost makes a host and checks, when the test ends, that nothing is left on
// it.
func newHost(t *testing.T) *fakeguest.Host {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("sandboxes mount, which needs root")
	}
	host := fakeguest.New(shortDir(t))
	t.Cleanup(func() {
		left, err := host.Leftovers()
		if err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
	return host
}

// shortDir makes a temporary directory with a path short enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kb") //nolint:usetesting // t.TempDir gives names too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fakeguest.New(dir).Clear(); err != nil { // there may be a mount in it
			t.Error(err)
		}
	})
	return dir
}

// newParams returns an engine's parameters for a container whose bundle is in
// dir.
func newParams(t *testing.T, dir, id string, annotations map[string]string) *Params {
	t.Helper()
	bundle := filepath.Join(dir, "bundles", id)
	if err := fakeguest.WriteBundle(bundle, annotations); err != nil {
		t.Fatal(err)
	}
	p, err := ParseArgs([]string{"-namespace", "test", "-id", id, "-address", dir, "-bundle", bundle, "start"},
		func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	p.SocketDir = filepath.Join(dir, "s")
	return p
}

// serviceOf are the annotations of a service container.
func serviceOf(sandbox string) map[string]string {
	return map[string]string{
		"io.kubernetes.cri.container-type": "container",
		"io.kubernetes.cri.sandbox-id":     sandbox,
	}
}

// reap waits until a child of this process has ended and reaps it.
func reap(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
		if got == pid {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("process %d does not end: %v", pid, err)
		}
	}
}

// sleeper starts this program to do nothing, with that command line. It is reaped
// as soon as it ends.
func sleeper(t *testing.T, args ...string) persist.Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child, err := os.StartProcess(self, args, &os.ProcAttr{Env: append(os.Environ(), roleEnv+"="+roleSleep)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := persist.Identify(child.Pid)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = child.Wait()
	}()
	t.Cleanup(func() {
		_ = p.Kill(time.Second)
		<-ended
	})
	return p
}

// gone waits until a process has ended and was reaped.
func gone(t *testing.T, p persist.Process) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); p.Alive(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there", p.PID)
		}
	}
}
