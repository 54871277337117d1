package run

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/image"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// A boot that fails leaves nothing.
func TestFailedBoot(t *testing.T) {
	ctx := testContext(t)
	for _, step := range []string{"agent", "streams"} {
		cmd := command(ctx, "run", "--name", newName(t), bed.images.layout, "id")
		cmd.Env = append(cmd.Env, "KATABOX_FAILPOINT="+step)
		finish(t, cmd, "").says(t, 125, "failpoint "+step)
		wantClean(t)
	}
}

func TestStreams(t *testing.T) {
	ctx := testContext(t)
	input := strings.Repeat("0123456789abcdef", 1<<16)
	r := call(ctx, t, input, "run", "--rm", "-i", "--network", "none", "--name", newName(t), bed.images.layout,
		"sh", "-c", "cat; cat "+image.BlobPath+"; echo end >&2")
	if r.code != 0 || r.out != input+string(image.Blob()) || !strings.HasSuffix(r.errOut, "end\n") {
		t.Errorf("exit code %d, %d bytes of output, want %d; standard error %q", r.code, len(r.out), len(input)+image.BlobSize, r.errOut)
	}
}

// When the reader of an output is gone, the writing process gets SIGPIPE, as in
// a shell's pipeline, and the other stream continues.
func TestReaderGoesAway(t *testing.T) {
	ctx := testContext(t)
	cmd := command(ctx, "run", "--rm", "--network", "none", "--name", newName(t), bed.images.layout,
		"sh", "-c", "yes; echo yes has ended with $? >&2; exit 6")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 10)); err != nil {
		t.Error(err)
	}
	out.Close()
	err = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 6 || !strings.HasSuffix(errOut.String(), "yes has ended with 141\n") {
		t.Errorf("ended with %v, standard error %q; want exit code 6, and that yes has ended with 141", err, errOut.String())
	}
}

// started starts a run in the foreground and waits for its first line. It returns what
// is written to standard error until the run's end.
func started(t *testing.T, cmd *exec.Cmd, line string) (errOut *bytes.Buffer) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errOut = new(bytes.Buffer)
	cmd.Stderr = errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(line))
	if _, err := out.Read(got); err != nil || string(got) != line {
		t.Fatalf("output %q, %v; want %q; standard error %s", got, err, line, errOut.String())
	}
	return errOut
}

func TestSignals(t *testing.T) {
	if signal.Ignored(unix.SIGINT) { // then it is ignored in child processes
		signal.Notify(make(chan os.Signal, 1), unix.SIGINT)
	}
	ctx := testContext(t)
	t.Run("passed on", func(t *testing.T) {
		cmd := command(ctx, "run", "--rm", "--network", "none", "--name", newName(t), bed.images.layout,
			"sh", "-c", `trap 'exit 9' TERM; trap 'exit 8' USR1; echo up; while :; do sleep 0.1; done`)
		started(t, cmd, "up\n")
		if err := cmd.Process.Signal(unix.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 8 {
			t.Errorf("ended with %v, want exit code 8", err)
		}
	})
	t.Run("Ctrl-C thrice", func(t *testing.T) {
		cmd := command(ctx, "run", "--rm", "--network", "none", "--name", newName(t), bed.images.layout,
			"sh", "-c", `trap '' INT; echo up; sleep 1000`)
		said := started(t, cmd, "up\n")
		for range 3 {
			if err := cmd.Process.Signal(unix.SIGINT); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond) // two signals in quick succession may become one
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 137 || !strings.Contains(said.String(), "kills the container") {
			t.Errorf("ended with %v, want exit code 137; standard error %s", err, said)
		}
	})
	t.Run("before the start", func(t *testing.T) {
		name := newName(t)
		cmd := command(ctx, "run", "--name", name, bed.images.layout, "sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		booting := func() bool {
			found, err := persist.Find("/run/kata-containers/sandboxes", name)
			return err == nil && len(found) > 0
		}
		if !eventually(ctx, booting) {
			t.Error("no machine boots")
		}
		if err := cmd.Process.Signal(unix.SIGINT); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
			t.Errorf("ended with %v, want exit code 130", err)
		}
	})
}
