package inside

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
)

// release is the containerd of the suite: what it tests does not depend on it.
const release = "2.4"

// testTimeout bounds one test. It is generous: nested machines are slow.
const testTimeout = 4 * time.Minute

// bed is what all tests share: one daemon, started at first use.
var bed struct {
	layout harness.Layout
	daemon *harness.Daemon
}

func TestMain(m *testing.M) {
	if os.Getenv(envClaim) != "" {
		os.Exit(claim(os.Stdin, os.Stdout))
	}
	if reason := unfit(); reason != "" {
		fmt.Println("SKIP:", reason)
		if os.Getenv(harness.EnvAccel) == "kvm" {
			os.Exit(1) // the caller expected a KVM host
		}
		os.Exit(0)
	}
	os.Exit(runAll(m))
}

// unfit says what this host lacks, or "".
func unfit() string {
	if os.Geteuid() != 0 {
		return "containerd needs root"
	}
	for _, device := range []string{"/dev/kvm", "/dev/vhost-vsock", "/dev/vhost-net"} {
		if _, err := os.Stat(device); err != nil {
			return "no KVM host: " + err.Error()
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &st); err != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
		return "/sys/fs/cgroup is not cgroup v2"
	}
	return ""
}

func runAll(m *testing.M) int {
	var err error
	if bed.layout, err = harness.FindLayout(); err != nil {
		fmt.Fprintln(os.Stderr, "prepare the suite:", err)
		return 1
	}
	if err := os.Setenv(harness.EnvAccel, "kvm"); err != nil { // even if it was not requested
		fmt.Fprintln(os.Stderr, "prepare the suite:", err)
		return 1
	}
	code := m.Run()
	if bed.daemon != nil {
		if err := bed.daemon.Stop(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "FAIL: after the tests:", err)
			code = 1
		}
	}
	return code
}

// begin returns a test's context and the daemon. At the test's end it checks
// that no pod has left anything and that each had KVM, and shows the daemon's
// log if the test failed.
func begin(t *testing.T) (context.Context, *harness.Daemon) {
	t.Helper()
	d := daemon(t)
	return d.Test(t, testTimeout, d.Settled), d
}

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
	bed.daemon, err = harness.Start(t.Context(), harness.Options{Layout: bed.layout, Release: r, Runtime: harness.Kata})
	if err != nil {
		t.Fatal(err)
	}
	return bed.daemon
}

// removed calls a clean-up with a timeout of one minute.
func removed(t *testing.T, what string, remove func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := remove(ctx); err != nil {
		t.Errorf("remove %s: %v", what, err)
	}
}
