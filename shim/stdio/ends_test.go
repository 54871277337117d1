package stdio

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers"
)

// write sends text as the process's stdout and "oops" as its stderr, and ends
// both.
func write(t *testing.T, i *IO, text string) {
	t.Helper()
	var conns virtcontainers.Conns
	out, guestOut := pair(t)
	errs, guestErr := pair(t)
	conns.Stdout, conns.Stderr = out, errs
	if err := i.Connect(conns); err != nil {
		t.Fatal(err)
	}
	if _, err := guestOut.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	guestOut.Close()
	if _, err := guestErr.Write([]byte("oops\n")); err != nil {
		t.Fatal(err)
	}
	guestErr.Close()
	i.copying.Wait()
	i.Close()
}

func TestFileEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "log")
	uri := "file://" + path
	for range 2 { // a second container appends
		write(t, newIO(t, Paths{Stdout: uri, Stderr: uri}), "hello\n")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), "hello\n"); n != 2 || strings.Count(string(data), "oops\n") != 2 {
		t.Errorf("the file holds %q", data)
	}
}

// A plain path may be a file's: it is appended to, also when it is stdout's and
// stderr's.
func TestPlainFileEnds(t *testing.T) {
	for name, readersStay := range map[string]bool{"containerd": false, "iSulad": true} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		write(t, newIO(t, Paths{Stdout: path, Stderr: path, ReadersStay: readersStay}), "hello\n")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(data), "\n")
		slices.Sort(lines[1:]) // stdout and stderr are copied concurrently
		if !slices.Equal(lines, []string{"before\n", "", "hello\n", "oops\n"}) {
			t.Errorf("%s: the file holds %q", name, data)
		}
	}
}

// script makes a logger program.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "logger")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBinaryEnds(t *testing.T) {
	t.Setenv("OF_THE_SHIM", " and what the shim was given") // runc's shim passes on nothing
	out := filepath.Join(t.TempDir(), "out")
	prog := script(t, fmt.Sprintf(`exec 5>&-; { echo "$CONTAINER_NAMESPACE $CONTAINER_ID$OF_THE_SHIM"; printf '[%%s]' "$@"; echo; cat <&3; cat <&4; } > %[1]s.tmp; mv %[1]s.tmp %[1]s`, out))
	uri := "binary://" + prog + "?key=value&flag&empty="
	write(t, newIO(t, Paths{Stdout: uri, Stderr: uri, Namespace: "ns", LoggerID: "c1"}), "hello\n")
	// As with runc's shim each key has its value, also an empty one.
	want := "ns c1\n[empty][][flag][][key][value]\nhello\noops\n"
	var got []byte
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if got, _ = os.ReadFile(out); len(got) > 0 {
			break
		}
	}
	if string(got) != want {
		t.Errorf("the logger got %q, want %q", got, want)
	}
}

// A logger of binary-v2 is ready once it has written a byte. One of binary may
// close the descriptor only.
func TestReadyLoggers(t *testing.T) {
	for _, c := range []struct {
		scheme, body string
		ready        bool
	}{
		{"binary", "exec 5>&-; cat <&3", true},
		{"binary", "echo >&5; cat <&3", true},
		{"binary-v2", "echo >&5; cat <&3", true},
		{"binary-v2", "exec 5>&-; cat <&3", false},
		{"binary-v2", "exit 1", false},
	} {
		i := newIO(t, Paths{Stdout: c.scheme + "://" + script(t, c.body)})
		in, _ := pair(t)
		err := i.Connect(virtcontainers.Conns{Stdout: in})
		i.Close()
		if ready := err == nil; ready != c.ready {
			t.Errorf("%s, %q: %v, want ready: %v", c.scheme, c.body, err, c.ready)
		}
	}
}

// A logger that does not end with its output gets SIGTERM, then SIGKILL.
func TestLoggersAreEnded(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{
		`exec sleep 1000 5>&-`:               syscall.SIGTERM,
		`trap '' TERM; exec sleep 1000 5>&-`: syscall.SIGKILL,
	} {
		l, err := startLogger(&url.URL{Path: script(t, name)}, "ns", "c1")
		if err != nil {
			t.Fatal(err)
		}
		l.patience = 200 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := EndLoggers(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), l.cmd.Path) {
			t.Errorf("%s: it has not ended, and the wait for it: %v", name, err)
		}
		cancel()
		if err := l.Close(); err != nil {
			t.Error(err) // it was closed already
		}
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		if err := EndLoggers(ctx); err != nil || LoggersRun() {
			t.Errorf("%s: %v; loggers run: %v", name, err, LoggersRun())
		}
		cancel()
		if s := l.cmd.ProcessState; s == nil || s.Sys().(syscall.WaitStatus).Signal() != signal {
			t.Errorf("%s: it ended with %v, want %v", name, s, signal)
		}
	}
}

func TestBadEnds(t *testing.T) {
	for _, uri := range []string{"binary://relative", "binary:///no/such/program"} {
		i := newIO(t, Paths{Stdout: uri})
		in, _ := pair(t)
		if err := i.Connect(virtcontainers.Conns{Stdout: in}); err == nil {
			t.Errorf("%s was opened", uri)
		}
	}
	if _, err := New(Paths{Stdin: "file:///x"}); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("stdin from a file: %v", err)
	}
}

// For a terminal an engine names a stderr too, but makes no FIFO there.
func TestTerminalHasNoStderr(t *testing.T) {
	e := newEngine(t)
	stdout := e.open(e.paths.Stdout, os.O_RDONLY)
	e.paths.Terminal, e.paths.Stderr = true, filepath.Join(t.TempDir(), "never-made")
	i := newIO(t, e.paths)
	out, guest := pair(t)
	if err := i.Connect(virtcontainers.Conns{Stdout: out}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	if _, err := guest.Write([]byte("typed\n")); err != nil {
		t.Fatal(err)
	}
	guest.Close()
	i.copying.Wait()
	got := make([]byte, 16)
	if n, err := stdout.Read(got); string(got[:n]) != "typed\n" {
		t.Errorf("got %q, error %v", got[:n], err)
	}
}

// AwaitEnds waits until a logger has written all that it has read, but not for one that
// does not end.
func TestLoggersAreAwaited(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	prog := script(t, fmt.Sprintf(`exec 5>&-; text=$(cat <&3); sleep 0.3; echo "$text" > %s`, out))
	i := newIO(t, Paths{Stdout: "binary://" + prog, Stderr: "binary://" + prog})
	write(t, i, "hello\n")
	i.Close()
	i.AwaitEnds(t.Context())
	if got, err := os.ReadFile(out); string(got) != "hello\n" {
		t.Errorf("the logger has written %q, %v", got, err)
	}
	l, err := startLogger(&url.URL{Path: script(t, `trap '' TERM; exec sleep 1000 5>&-`)}, "ns", "c1")
	if err != nil {
		t.Fatal(err)
	}
	l.patience = 5 * time.Second
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	began := time.Now()
	(&IO{loggers: []*logger{l, l, l}}).AwaitEnds(t.Context())
	if took := time.Since(began); took > 2*endsWait {
		t.Errorf("waited for %v", took)
	}
	select {
	case <-l.ended:
		t.Error("a logger that does not end has ended")
	default:
	}
	if err := l.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := EndLoggers(t.Context()); err != nil {
		t.Error(err)
	}
}
