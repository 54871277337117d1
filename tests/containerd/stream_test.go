package containerd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/image"
)

// blocks is how many MiB the big streams have.
const blocks = 64

// counter is a hash that knows how much it was given.
type counter struct {
	hash.Hash
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.Hash.Write(p)
}

// blockStream is what printBlocks prints: numbered copies of the image's blob.
func blockStream(w io.Writer) {
	for i := range blocks {
		fmt.Fprintln(w, i)
		_, _ = w.Write(image.Blob())
	}
}

var printBlocks = fmt.Sprintf(`i=0; while [ $i -lt %d ]; do echo $i; cat %s; i=$((i+1)); done`, blocks, image.BlobPath)

func TestBigStdoutArrivesWhole(t *testing.T) {
	want := &counter{Hash: sha256.New()}
	blockStream(want)
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		got := &counter{Hash: sha256.New()}
		c := add(ctx, t, pod, harness.ContainerConfig{Args: script(printBlocks), Stdio: harness.Stdio{Stdout: got}})
		wantCode(ctx, t, &c.Process, 0)
		if got.n != want.n || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
			t.Errorf("init: got %d bytes, hash %x; want %d, %x", got.n, got.Sum(nil), want.n, want.Sum(nil))
		}
		again := &counter{Hash: sha256.New()}
		execOut(ctx, t, idle(ctx, t, pod), harness.ExecConfig{Args: script(printBlocks), Stdio: harness.Stdio{Stdout: again}})
		if again.n != want.n || !bytes.Equal(again.Sum(nil), want.Sum(nil)) {
			t.Errorf("exec: got %d bytes, want %d", again.n, want.n)
		}
	})
}

func TestStderrStaysApart(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c := add(ctx, t, newPod(ctx, t, d), harness.ContainerConfig{
			Args: script(`for i in 1 2 3; do echo out$i; echo err$i >&2; done`),
		})
		wantCode(ctx, t, &c.Process, 0)
		if c.Out.String() != "out1\nout2\nout3\n" || c.Err.String() != "err1\nerr2\nerr3\n" {
			t.Errorf("stdout %q, stderr %q", c.Out, c.Err)
		}
	})
}

func TestStdinEndsWhenClosed(t *testing.T) {
	big := bytes.Repeat(image.Blob(), 4)
	sum := fmt.Sprintf("%x  -\n", sha256.Sum256(big))
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		c := add(ctx, t, pod, harness.ContainerConfig{
			Args:  []string{"cat"},
			Stdio: harness.Stdio{Stdin: strings.NewReader("first\nlast, without newline")},
		})
		wantCode(ctx, t, &c.Process, 0)
		if got := c.Out.String(); got != "first\nlast, without newline" {
			t.Errorf("cat gave %q", got)
		}
		got := execOut(ctx, t, idle(ctx, t, pod), harness.ExecConfig{
			Args:  []string{"sha256sum"},
			Stdio: harness.Stdio{Stdin: bytes.NewReader(big)},
		})
		if got != sum {
			t.Errorf("sha256sum of %d bytes of stdin: %q, want %q", len(big), got, sum)
		}
	})
}

// A client ends without CloseIO, as containerd does when it is restarted: the
// input goes on with the next client's, as with runc.
func TestStdinOutlivesItsClient(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		reads := script(`while read line; do echo "$line"; done; echo end`)
		begin := func() (harness.Stdio, *io.PipeWriter) {
			r, w := io.Pipe()
			return harness.Stdio{Stdin: r, KeepStdin: true}, w
		}
		stdio, first := begin()
		c := add(ctx, t, pod, harness.ContainerConfig{Args: reads, Stdio: stdio})
		goesOn(ctx, t, &c.Process, first)
		stdio, first = begin()
		e, err := idle(ctx, t, pod).Exec(ctx, harness.ExecConfig{Args: reads, Stdio: stdio})
		if err == nil {
			err = e.Start(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		goesOn(ctx, t, e, first)
		if err := e.Remove(ctx); err != nil {
			t.Error(err)
		}
	})
}

// goesOn sends a line from the first client, which ends, and one from another.
func goesOn(ctx context.Context, t *testing.T, p *harness.Process, first *io.PipeWriter) {
	t.Helper()
	if _, err := io.WriteString(first, "first\n"); err != nil {
		t.Fatal(err)
	}
	first.Close()
	for p.Out.String() != "first\n" {
		select {
		case <-ctx.Done():
			t.Fatalf("stdout is %q", p.Out)
		case <-time.After(20 * time.Millisecond):
		}
	}
	time.Sleep(time.Second) // an end of the input would arrive by now
	second, err := os.OpenFile(p.IO().Config().Stdin, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatalf("the input ended with its client: %v", err)
	}
	_, err = second.WriteString("second\n")
	if err := errors.Join(err, second.Close(), p.CloseIO(ctx, client.WithStdinCloser)); err != nil {
		t.Fatal(err)
	}
	wantCode(ctx, t, p, 0)
	if got := p.Out.String(); got != "first\nsecond\nend\n" {
		t.Errorf("stdout is %q", got)
	}
}

// Output after the end of stdin must still arrive: the end of stdin is a
// half-close, not a close.
func TestOutputAfterStdinEnded(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c := add(ctx, t, newPod(ctx, t, d), harness.ContainerConfig{
			Args:  script(`cat >/dev/null; sleep 0.3; echo after`),
			Stdio: harness.Stdio{Stdin: strings.NewReader("x")},
		})
		wantCode(ctx, t, &c.Process, 0)
		if got := c.Out.String(); got != "after\n" {
			t.Errorf("got %q", got)
		}
	})
}
