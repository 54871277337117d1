package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
)

// envInside tells the suite that it runs in its own network namespace.
const envInside = "KATABOX_NETWORK_INSIDE"

// envProbe names a prebuilt probe, for a host on which compiling is slow.
const envProbe = "KATABOX_TEST_PROBE"

// release is the containerd of the suite: what it tests does not depend on it.
const release = "2.4"

// testTimeout bounds one test. It is generous: a machine without KVM that has
// other work boots five VMs in a minute.
const testTimeout = 8 * time.Minute

// bed is what all tests share: one daemon, started at first use.
var bed struct {
	layout  harness.Layout
	runtime harness.Runtime
	daemon  *harness.Daemon
	// tools is a directory with the probe, mounted into containers.
	tools string
	// networks is how many networks there were; each has its own number.
	networks int
}

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Println("SKIP: containerd needs root")
		os.Exit(0)
	}
	if os.Getenv(envInside) == "" {
		os.Exit(runInside())
	}
	os.Exit(runSuite(m))
}

// runInside runs this program again in a new network namespace, and returns
// its exit code.
func runInside() int {
	// PDEATHSIG fires when the thread that forked ends (prctl(2)).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), envInside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "start the suite in a network namespace:", err)
		return 1
	}
	return 0
}

func runSuite(m *testing.M) int {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "prepare the suite:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(bed.tools) }()
	before, err := hostNetwork()
	if err != nil {
		fmt.Fprintln(os.Stderr, "prepare the suite:", err)
		return 1
	}
	code := m.Run()
	if err := finish(before); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: after the tests:", err)
		code = 1
	}
	return code
}

// finish stops the daemon, which checks for processes, mounts, links and files,
// and compares the network with the one before.
func finish(before string) error {
	var errs []error
	if bed.daemon != nil {
		errs = append(errs, bed.daemon.Stop(context.Background()))
	}
	after, err := hostNetwork()
	if err == nil && after != before {
		err = fmt.Errorf("the host's network was\n%s\nand is\n%s", before, after)
	}
	return errors.Join(append(errs, err)...)
}

func prepare() (err error) {
	if bed.layout, err = harness.FindLayout(); err != nil {
		return err
	}
	if bed.runtime, err = harness.RuntimeFromEnv(); err != nil {
		return err
	}
	for _, tool := range []struct{ path, pkg string }{
		{"/usr/sbin/ip", "iproute2"}, {"/usr/sbin/tc", "iproute2"}, {"/usr/sbin/iptables-save", "iptables"},
		{filepath.Join(pluginDir, "bridge"), "containernetworking-plugins"},
	} {
		if _, err := os.Stat(tool.path); err != nil {
			return fmt.Errorf("%w: it is of Debian's package %s: run \"make deps\"", err, tool.pkg)
		}
	}
	if _, err := netns("").run("ip", "link", "set", "lo", "up"); err != nil {
		return err
	}
	if bed.tools, err = os.MkdirTemp("", "kbprobe"); err != nil {
		return err
	}
	return makeProbe()
}

// makeProbe puts the probe into the tools' directory.
func makeProbe() error {
	if ready := os.Getenv(envProbe); ready != "" {
		program, err := os.ReadFile(ready)
		if err != nil {
			return fmt.Errorf("copy the probe: %w", err)
		}
		return os.WriteFile(probePath(), program, 0o755)
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", probePath(), "./tests/network/probe")
	cmd.Dir, cmd.Env = bed.layout.Root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the probe: %w: %s", err, out)
	}
	return nil
}

func probePath() string { return filepath.Join(bed.tools, "probe") }

// daemon starts the suite's containerd at first use.
func daemon(t *testing.T) *harness.Daemon {
	t.Helper()
	if bed.daemon != nil {
		return bed.daemon
	}
	r, err := harness.FindRelease(bed.layout, release)
	if err != nil {
		t.Fatal(err)
	}
	bed.daemon, err = harness.Start(t.Context(), harness.Options{Layout: bed.layout, Release: r, Runtime: bed.runtime})
	if err != nil {
		t.Fatal(err)
	}
	return bed.daemon
}

// begin returns a test's context and the daemon. At the test's end it checks
// that no pod has left anything, and shows the daemon's log if the test failed.
func begin(t *testing.T) (context.Context, *harness.Daemon) {
	t.Helper()
	d := daemon(t)
	before, err := hostNetwork()
	if err != nil {
		t.Fatal(err)
	}
	return d.Test(t, testTimeout, d.Settled, func(ctx context.Context) error {
		// The kernel removes a namespace's links a moment after the namespace.
		eventually(ctx, t, "the host's network", before, hostNetwork)
		return nil
	}), d
}

// needVM skips a test that means nothing without a virtual machine.
func needVM(t *testing.T) {
	t.Helper()
	if !bed.runtime.VM {
		t.Skipf("%s runs no virtual machine", bed.runtime.Name)
	}
}
