package containerd

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"slices"
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
