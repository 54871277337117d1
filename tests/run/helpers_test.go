package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds one test: a host without KVM may be busy with other suites.
const patience = 8 * time.Minute

// result is how a call ended.
type result struct {
	code        int
	out, errOut string
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// command prepares a call of the program with the suite's store.
func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program(), args...)
	cmd.Env = append(os.Environ(), "KATABOX_STORE="+bed.store, "KATA_CONF_FILE="+bed.config, envTag+"="+bed.tag)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// call runs the program to its end.
func call(ctx context.Context, t *testing.T, stdin string, args ...string) result {
	t.Helper()
	return finish(t, command(ctx, args...), stdin)
}

func finish(t *testing.T, cmd *exec.Cmd, stdin string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	err := cmd.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatalf("%v: %v (%v)", cmd.Args, err, failed)
	}
	return result{code: cmd.ProcessState.ExitCode(), out: out.String(), errOut: errOut.String()}
}

// want checks how a call ended.
func (r result) want(t *testing.T, code int, out string) {
	t.Helper()
	if r.code != code || r.out != out {
		t.Errorf("exit code %d, output %q; want %d, %q\nstandard error: %s", r.code, r.out, code, out, r.errOut)
	}
}

// must is want for a result that the rest of a test needs: it ends the test.
func (r result) must(t *testing.T, code int, out string) {
	t.Helper()
	if r.want(t, code, out); t.Failed() {
		t.FailNow()
	}
}

// says checks an error's text.
func (r result) says(t *testing.T, code int, text string) {
	t.Helper()
	if r.code != code || !strings.Contains(r.errOut, text) {
		t.Errorf("exit code %d, standard error %q; want %d and %q", r.code, r.errOut, code, text)
	}
}

var names atomic.Int32

// newName returns a container's name that no other test has. At the test's end
// nothing of the container may be left.
func newName(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("%s-%d", bed.tag, names.Add(1))
	t.Cleanup(func() { wantClean(t) })
	return name
}

// eventually waits until holds returns true or ctx ends, and reports which.
func eventually(ctx context.Context, holds func() bool) bool {
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		if holds() {
			tick.Stop()
			return true
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return false
		case <-tick.C:
		}
	}
}

// wantClean checks that nothing of the suite is left on the host, and removes
// what is left.
func wantClean(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var left []string
	if eventually(ctx, func() bool { left = leftovers(); return len(left) == 0 }) {
		return
	}
	t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	for _, pid := range tagged() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	entries, _ := filepath.Glob(filepath.Join(bed.store, "containers", "*"))
	for _, dir := range entries {
		_ = os.RemoveAll(dir)
	}
}

func leftovers() []string {
	var left []string
	for _, pid := range tagged() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		left = append(left, fmt.Sprintf("process %d %s", pid, bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
	}
	for _, pattern := range []string{
		bed.store + "/containers/*", bed.store + "/layers/new-*",
		"/run/kata-containers/sandboxes/" + bed.tag + "*", "/sys/fs/cgroup/katabox/kata_" + bed.tag + "*", "/sys/fs/cgroup/*/katabox/kata_" + bed.tag + "*",
	} {
		found, _ := filepath.Glob(pattern)
		left = append(left, found...)
	}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, bed.dir) {
			left = append(left, "mount "+line)
		}
	}
	return left
}

// tagged lists the processes with the suite's tag in their environment.
func tagged() []int {
	var pids []int
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		data, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(data, []byte(envTag+"="+bed.tag)) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// readLine reads one line as it arrives.
func readLine(t *testing.T, r io.ByteReader) string {
	t.Helper()
	var line []byte
	for {
		b, err := r.ReadByte()
		if err != nil {
			t.Fatalf("after %q: %v", line, err)
		}
		if b == '\n' {
			return strings.TrimRight(string(line), "\r") // two terminals, the guest's and the host's, may add one each
		}
		line = append(line, b)
	}
}
