package containerd

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/image"
)

// readLater runs a command whose output is not read for longer than an exit waits
// for its reader, and returns how much came, and its error.
func readLater(t *testing.T, cmd *exec.Cmd) (int, error) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n, err := io.ReadFull(out, make([]byte, 1))
	time.Sleep(5 * time.Second)
	rest, readErr := io.ReadAll(out)
	return n + len(rest), errors.Join(err, readErr, cmd.Wait())
}

// A client that pauses, as "ctr run ... | less" does, gets all output of a process
// that has ended meanwhile, and of a machine that has.
func TestReaderThatPauses(t *testing.T) {
	const size = 1000 * 1024
	print1M := []string{"sh", "-c", "dd if=/dev/zero bs=1k count=1000 2>/dev/null"}
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		if n, err := readLater(t, d.CtrRun(ctx, d.Runtime(), d.NewID("ctr"), image.Busybox, print1M...)); n != size || err != nil {
			t.Errorf("ctr run: %d bytes, %v, want %d", n, err, size)
		}
		// A status of 255 is no signal's.
		failing := append(slices.Clone(print1M[:2]), print1M[2]+"; exit 255")
		var exit *exec.ExitError
		if n, err := readLater(t, d.CtrRun(ctx, d.Runtime(), d.NewID("ctr"), image.Busybox, failing...)); n != size || !errors.As(err, &exit) || exit.ExitCode() != 255 {
			t.Errorf("ctr run of a command that fails: %d bytes, %v, want %d", n, err, size)
		}
		id := runDetached(ctx, t, d)
		args := append([]string{"task", "exec", "--exec-id", "one", id}, print1M...)
		if n, err := readLater(t, d.CtrCmd(ctx, args...)); n != size || err != nil {
			t.Errorf("ctr task exec: %d bytes, %v, want %d", n, err, size)
		}
		ctr(ctx, t, d, "task", "rm", "-f", id)
		ctr(ctx, t, d, "container", "rm", id)
	})
}

// hasOutputInFile reports whether the only shim has a file of an output that is not empty.
func hasOutputInFile(t *testing.T, d *harness.Daemon) bool {
	t.Helper()
	shim, err := d.One(harness.KindShim)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", shim.PID))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(fds, func(fd string) bool {
		target, _ := os.Readlink(fd)
		info, err := os.Stat(fd)
		return strings.Contains(target, "/outputs/") && err == nil && info.Size() > 0
	})
}

// Much output arrives whole, also if the client pauses, or the pod hibernates, while some of
// it is on its way.
func TestMuchOutput(t *testing.T) {
	const times, blocks = 6, 12
	all := fmt.Sprintf("for i in $(seq %d); do cat /dev/shm/f; done", times)
	hibernating(t, func(*harness.Options) {}, func(ctx context.Context, t *testing.T, d *harness.Daemon, _ string) {
		id := runDetached(ctx, t, d)
		fill := fmt.Sprintf("dd if=/dev/urandom of=/dev/shm/f bs=1M count=%d 2>/dev/null && (%s) | md5sum", blocks, all)
		want := ctr(ctx, t, d, "task", "exec", "--exec-id", "fill", id, "sh", "-c", fill)
		pause := func() {
			time.Sleep(5 * time.Second)
			if !hasOutputInFile(t, d) {
				t.Error("no output is in a file of the share")
			}
		}
		for _, c := range []struct {
			name      string
			meanwhile func()
		}{
			{"reads-on", func() {}},
			{"pauses", pause},
			{"hibernates", func() {
				hibernate(ctx, t, d, id)
				ctr(ctx, t, d, "task", "exec", "--exec-id", "wake", id, "true")
			}},
			{"pauses-when-awake", pause},
		} {
			cmd := d.CtrCmd(ctx, "task", "exec", "--exec-id", c.name, id, "sh", "-c", all)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			sum := md5.New()
			n, err := io.CopyN(sum, out, blocks<<20)
			if err != nil {
				t.Error(err)
			}
			c.meanwhile()
			rest, err := io.Copy(sum, out)
			if err := errors.Join(err, cmd.Wait()); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if got := fmt.Sprintf("%x", sum.Sum(nil)); n+rest != times*blocks<<20 || !strings.HasPrefix(want, got) {
				t.Errorf("%s: %d bytes with sum %s, want %d and %s", c.name, n+rest, got, times*blocks<<20, want)
			}
		}
		ctr(ctx, t, d, "task", "rm", "-f", id)
		ctr(ctx, t, d, "container", "rm", id)
	})
}
