package containerd

import (
	"context"
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/image"
)

// ctr runs a command of ctr that must succeed.
func ctr(ctx context.Context, t *testing.T, d *harness.Daemon, args ...string) string {
	t.Helper()
	out, err := d.Ctr(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// runDetached is "ctr run -d" of a container that ends only when it is killed.
func runDetached(ctx context.Context, t *testing.T, d *harness.Daemon) string {
	t.Helper()
	id := d.NewID("ctr")
	ctr(ctx, t, d, "run", "-d", "--runtime", d.Runtime().Type, "--snapshotter", d.Snapshotter,
		image.Busybox, id, "sleep", "100000")
	t.Cleanup(func() {
		// Only needed if the test ended early: otherwise all these fail.
		after, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, _ = d.Ctr(after, "task", "rm", "-f", id)
		_, _ = d.Ctr(after, "container", "rm", id)
	})
	return id
}

// taskRow returns the row of "ctr task ls" for one container: its pid and
// status.
func taskRow(ctx context.Context, t *testing.T, d *harness.Daemon, id string) []string {
	t.Helper()
	for line := range strings.Lines(ctr(ctx, t, d, "task", "ls")) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == id {
			return fields[1:]
		}
	}
	return nil
}

var pidRow = regexp.MustCompile(`(?m)^\d+\s`)

func TestCtrTask(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		id := runDetached(ctx, t, d)
		if row := taskRow(ctx, t, d, id); len(row) != 2 || row[1] != "RUNNING" || row[0] == "0" {
			t.Errorf("task ls of a running task: %q", row)
		}
		if ps := ctr(ctx, t, d, "task", "ps", id); !pidRow.MatchString(ps) {
			t.Errorf("task ps names no process: %q", ps)
		}
		out := ctr(ctx, t, d, "task", "exec", "--exec-id", "one", "--cwd", "/home/app", id, "sh", "-c", "echo from $PWD")
		if out != "from /home/app\n" {
			t.Errorf("task exec printed %q", out)
		}
		_, err := d.Ctr(ctx, "task", "exec", "--exec-id", "two", id, "sh", "-c", "exit 7")
		wantExit(t, err, 7)
		_, err = d.Ctr(ctx, "task", "rm", id)
		wantError(t, err, id)
		ctr(ctx, t, d, "task", "kill", "-s", "SIGKILL", id)
		awaitStatus(ctx, t, d, id, "STOPPED")
		// ctr prints the exit code of what it removes in a warning.
		if out := ctr(ctx, t, d, "task", "rm", id); !strings.Contains(out, "exit code 137") {
			t.Errorf("task rm of a killed task printed %q", out)
		}
		if row := taskRow(ctx, t, d, id); row != nil {
			t.Errorf("task ls of a removed task: %q", row)
		}
		ctr(ctx, t, d, "container", "rm", id)
	})
}

// "ctr run" gives the container's output and its exit code.
func TestCtrRun(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		cmd := d.CtrRun(ctx, d.Runtime(), d.NewID("run"), image.Busybox, "sh", "-c", "echo out; exit 42")
		out, err := cmd.Output()
		wantExit(t, err, 42)
		if string(out) != "out\n" {
			t.Errorf("ctr run printed %q", out)
		}
	})
}

// wantExit compares the exit code of a command of ctr.
func wantExit(t *testing.T, err error, want int) {
	t.Helper()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != want {
		t.Errorf("ctr ended with %v, want exit code %d", err, want)
	}
}

// awaitStatus waits until "ctr task ls" shows a status.
func awaitStatus(ctx context.Context, t *testing.T, d *harness.Daemon, id, want string) {
	t.Helper()
	for {
		row := taskRow(ctx, t, d, id)
		if len(row) == 2 && row[1] == want {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("task ls shows %q, want %s", row, want)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
