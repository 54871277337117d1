package container

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/containerd/console"
	"github.com/containerd/containerd/api/runtime/task/v3"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/standalone/spec"
)

// fullDisk is an output that cannot be written to.
func fullDisk(t *testing.T) *os.File {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { full.Close() })
	return full
}

const noSpace = "standard output: no space left on device: the rest is dropped"

// well returns a waiter for the same process, as if that ended with 0.
func well(w *waiter) *waiter {
	good := &waiter{cancel: w.cancel, done: make(chan struct{}), resp: new(task.WaitResponse)}
	go func() {
		defer close(good.done)
		<-w.done
		good.err = w.err
	}()
	return good
}

// next returns the next warning.
func next(t *testing.T, said <-chan string) string {
	t.Helper()
	select {
	case text := <-said:
		return text
	case <-time.After(patience):
		t.Fatal("no warning")
		return ""
	}
}

// writeTo writes to one of the FIFOs of a command, as its shim does.
func writeTo(t *testing.T, fifo, text string) {
	t.Helper()
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// Output that cannot be written is a warning, in the record too, and keeps a run from
// looking as if it had succeeded. The command's own code stays in the record.
func TestOutputOnAFullDisk(t *testing.T) {
	m, img := newManager(t)
	said := make(chan string, 10)
	stdio := &Stdio{Out: fullDisk(t), Err: io.Discard, Warn: func(text string) { said <- text }}
	c := run(t, m, img, Options{Name: "c"}, stdio)
	c.exit = well(c.exit)
	ended := make(chan int, 1)
	go func() {
		code, err := c.Wait(t.Context(), stdio)
		if err != nil {
			t.Error(err)
		}
		ended <- code
	}()
	writeTo(t, stdio.fifos.Out, "text")
	if got := next(t, said); got != noSpace {
		t.Errorf("warning %q while it runs", got)
	}
	writeTo(t, stdio.fifos.Out, "more") // is read, and not warned of again
	if err := c.Kill(t.Context(), 9); err != nil {
		t.Fatal(err)
	}
	if code := <-ended; code != ExitError {
		t.Errorf("exit code %d, want %d", code, ExitError)
	}
	if len(said) > 0 {
		t.Errorf("a further warning: %s", <-said)
	}
	if r, err := m.Load("c"); err != nil || !slices.Equal(r.Warnings, []string{noSpace}) || r.Exited == nil || r.Exited.Code != 0 {
		t.Errorf("its record: %+v, %v", r, err)
	}
	var log bytes.Buffer
	if err := m.Logs(t.Context(), "c", false, &log, io.Discard); err != nil || log.String() != "textmore" {
		t.Errorf("its log: %q, %v", log.String(), err)
	}
}

// The same holds for an exec; a command that failed keeps its code.
func TestExecsOutputOnAFullDisk(t *testing.T) {
	m, img := newManager(t)
	stdio := new(Stdio)
	c := run(t, m, img, Options{Name: "c", Remove: true}, stdio)
	for _, good := range []bool{true, false} {
		said := make(chan string, 10)
		streams := &Stdio{Out: fullDisk(t), Err: io.Discard, Warn: func(text string) { said <- text }}
		e, err := m.StartExec(t.Context(), "c", spec.Options{Args: []string{"sh"}}, streams)
		if err != nil {
			t.Fatal(err)
		}
		writeTo(t, streams.fifos.Out, "text")
		if err := e.Kill(t.Context(), 9); err != nil {
			t.Fatal(err)
		}
		want := 137
		if good {
			want = ExitError
			e.exit = well(e.exit)
		}
		if code, err := e.Wait(t.Context(), streams); code != want || err != nil {
			t.Errorf("exit code %d, %v; want %d", code, err, want)
		}
		if got := next(t, said); got != noSpace || len(said) > 0 {
			t.Errorf("warning %q, and %d more", got, len(said))
		}
	}
	if err := c.Kill(t.Context(), 9); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wait(t.Context(), stdio); err != nil {
		t.Error(err)
	}
}

// blockingPipe returns a pipe whose ends are in no poller, like a shell's.
func blockingPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w = os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// Another process that shares the output may make it non-blocking: the reader gets
// everything nonetheless.
func TestOutputBecomesNonBlocking(t *testing.T) {
	reader, out := blockingPipe(t)
	s, w := newStdio(t, out)
	s.Warn = func(text string) { t.Errorf("warning %q", text) }
	if err := unix.SetNonblock(int(out.Fd()), true); err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	go func() {
		_, _ = w.Write(want)
		_ = s.drain(t.Context()) // its context does not end
		out.Close()
	}()
	var got bytes.Buffer
	for {
		time.Sleep(time.Millisecond) // the pipe is full meanwhile
		if _, err := io.CopyN(&got, reader, 48<<10); err != nil {
			break
		}
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d bytes came of %d", got.Len(), len(want))
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

// hungUp returns a terminal that was hung up, as by closing its window.
func hungUp(t *testing.T) *os.File {
	t.Helper()
	master, path, err := console.NewPty()
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	if err := master.Close(); err != nil {
		t.Fatal(err)
	}
	return terminal
}

// A terminal that was hung up is one without a reader.
func TestTerminalHangsUp(t *testing.T) {
	s, w := newStdio(t, hungUp(t))
	s.Warn = func(text string) { t.Errorf("warning %q", text) }
	broken := make(chan struct{}, 10)
	s.Broken = func() { broken <- struct{}{} }
	if _, err := w.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-broken:
	case <-time.After(patience):
		t.Error("the command is not ended")
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

// A command without a terminal whose output is one that was hung up gets a broken pipe.
func TestTerminalOfAPipeHangsUp(t *testing.T) {
	s := &Stdio{Out: hungUp(t), Err: io.Discard, Warn: func(text string) { t.Errorf("warning %q", text) }}
	if err := s.open(t.TempDir(), "stdio", false); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(s.fifos.Out, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	stderr, err := os.OpenFile(filepath.Join(filepath.Dir(s.fifos.Out), "stderr"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	s.relay(func() {})
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, err := w.WriteString("text"); err != nil {
			if !errors.Is(err, unix.EPIPE) {
				t.Error(err)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the pipe does not break")
		}
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}
