package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// shell starts /bin/sh -c script; it is killed when the test ends.
func shell(t *testing.T, script string, opts Options) *Process {
	t.Helper()
	opts.Path, opts.Args = "/bin/sh", []string{"-c", script}
	p, err := Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

func await(t *testing.T, p *Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-bounded(t).Done():
		t.Fatal("the child does not end")
	}
}

func TestOutputAndStatus(t *testing.T) {
	var stdout bytes.Buffer
	var lines []string
	p := shell(t, `env; echo out; echo err >&2; printf 'esc\033[2J' >&2; exit 3`, Options{
		Env:        []string{"A=b"},
		Stdout:     &stdout,
		StderrLine: func(line string) { lines = append(lines, line) },
	})
	await(t, p)
	if diff := cmp.Diff([]string{"err", "esc?[2J"}, lines); diff != "" {
		t.Errorf("stderr lines: %s", diff)
	}
	if got := p.Stderr().String(); got != "err\nesc?[2J" {
		t.Errorf("stderr: %q", got)
	}
	if got := stdout.String(); !strings.HasSuffix(got, "out\n") || !strings.Contains(got, "A=b\n") || strings.Contains(got, "HOME=") {
		t.Errorf("stdout: %q", got)
	}
	var exit *exec.ExitError
	if !errors.As(p.Err(), &exit) || p.ExitState().ExitCode() != 3 {
		t.Errorf("Err %v, state %v", p.Err(), p.ExitState())
	}
}

// Lines of stdout are passed on with and without a writer for it, even a last
// one without a newline.
func TestStdoutLines(t *testing.T) {
	var stdout bytes.Buffer
	for _, w := range []io.Writer{nil, &stdout} {
		var lines []string
		p := shell(t, `echo out; printf 'esc\033[2J'`, Options{Stdout: w, StdoutLine: func(line string) { lines = append(lines, line) }})
		await(t, p)
		if diff := cmp.Diff([]string{"out", "esc?[2J"}, lines); diff != "" {
			t.Errorf("stdout lines: %s", diff)
		}
	}
	if got := stdout.String(); got != "out\nesc\033[2J" {
		t.Errorf("stdout: %q", got)
	}
}

func TestRunningAndKilled(t *testing.T) {
	p := shell(t, "exec sleep 1000", Options{})
	if p.Err() != nil || p.ExitState() != nil {
		t.Errorf("of a running child: Err %v, state %v", p.Err(), p.ExitState())
	}
	// It is killed although the context has ended, but there is no wait.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Kill(ended); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for range 2 {
		if err := p.Kill(bounded(t)); err != nil {
			t.Error(err)
		}
	}
	if err := unix.Kill(p.Pid(), 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the child was not reaped: %v", err)
	}
	if got := p.ExitState().String(); got != "signal: killed" {
		t.Errorf("state: %s", got)
	}
}

func TestStartFails(t *testing.T) {
	for _, path := range []string{"/nonexistent/qemu", "/etc/passwd", "sh"} {
		if p, err := Start(Options{Path: path, Stdout: io.Discard}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, %v", path, p, err)
		}
	}
}

func TestExtraFiles(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	shell(t, "echo hello >&4", Options{ExtraFiles: []*os.File{null, w}})
	_ = w.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != "hello\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// A process that the child left behind holds the pipes: Done must not wait
// for it.
func TestGrandchildHoldsPipes(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out bytes.Buffer
	p := shell(t, "(read x <&3) & echo started; echo bye >&2", Options{Stdout: &out, ExtraFiles: []*os.File{r}})
	await(t, p)
	if out.String() != "started\n" || p.Stderr().String() != "bye\n" {
		t.Errorf("stdout %q, stderr %q", out.String(), p.Stderr())
	}
	_ = w.Close() // the grandchild ends
}

// What a child wrote before its end is read even if the reader is late.
func TestLateReaderLosesNothing(t *testing.T) {
	const size = 60 << 10
	out := &slowWriter{}
	p := shell(t, fmt.Sprintf("head -c %d /dev/zero", size), Options{Stdout: out})
	await(t, p)
	if out.size != size {
		t.Errorf("%d bytes were read, want %d", out.size, size)
	}
}

// slowWriter is slow at the first write. Only one goroutine writes.
type slowWriter struct{ size int }

func (w *slowWriter) Write(p []byte) (int, error) {
	if w.size == 0 {
		time.Sleep(3 * drainGrace)
	}
	w.size += len(p)
	return len(p), nil
}

func TestNamespaces(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making namespaces needs root")
	}
	var out bytes.Buffer
	p := shell(t, "echo $$; cat /proc/net/dev | wc -l; readlink /proc/self/ns/uts", Options{
		Stdout:     &out,
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	})
	await(t, p)
	if p.Err() != nil {
		t.Fatalf("%v: %s", p.Err(), p.Stderr())
	}
	host, err := os.Readlink("/proc/self/ns/uts")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(out.String())
	if len(got) != 3 || got[0] != "1" || got[2] == host {
		t.Errorf("in the namespaces: %q; host %s", got, host)
	}
}
