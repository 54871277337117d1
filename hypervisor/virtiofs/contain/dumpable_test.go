package contain

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// envServer is set in a process that TestOtherServersMemory starts.
const envServer = "KATABOX_TEST_CONTAINED_SERVER"

// A thread that sees the host's /proc cannot access the memory of another process's
// confined threads, although these have its user and its capabilities.
func TestOtherServersMemory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("to shut threads in needs root")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run", "^TestServerInside$")
	cmd.Env = append(os.Environ(), envServer+"=1")
	stop, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stop.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	thread := fmt.Sprintf("/proc/%d/task/%s/", cmd.Process.Pid, strings.TrimSpace(line))
	err = inside(t, "/", func() error {
		var errs []error
		for _, name := range []string{"mem", "environ", "maps"} {
			fd, err := unix.Open(thread+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				_ = unix.Close(fd)
			}
			if !errors.Is(err, unix.EACCES) {
				errs = append(errs, fmt.Errorf("open %s: %v, want EACCES", name, err)) //nolint:errorlint // it may be nil
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Error(err)
	}
}

// TestServerInside is the other process: it prints the id of a confined thread, which
// lives until its stdin is closed.
func TestServerInside(t *testing.T) {
	if os.Getenv(envServer) == "" {
		t.Skip("another test runs this one")
	}
	err := inside(t, t.TempDir(), func() error {
		fmt.Println(unix.Gettid())
		_, _ = unix.Read(0, make([]byte, 1))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
